"""Machine instructions of Volta and Turing: mnemonic and pipe by opcode, the low 9 bits of the word.

The opcodes were found by letting nvdisasm 12.8 read a word for each of the 4096 values of the low 12
bits, of which the upper three tell where the operands lie.  The two architectures agree wherever both
have an opcode.  Pipes: Nsight Compute documentation, "Hardware Model", "Pipelines".
"""

from __future__ import annotations

__all__ = ["OPCODES", "PIPES"]

_NAMES = {
    "fma": "FMUL 020 FADD 021 FSWZADD 022 FFMA 023 IMAD 024 IMAD 025 IDP 026 IMAD 027",
    "alu": (
        "MOV 002 P2R 003 R2P 004 SEL 007 FSEL 008 FMNMX 009 FSET 00a FSETP 00b ISETP 00c "
        "CSMTEST 00d IADD3 010 LEA 011 LOP3 012 IABS 013 VABSDIFF 014 VABSDIFF4 015 PRMT 016 "
        "IMNMX 017 SHF 019 SGXT 01a BMSK 01b PLOP3 01c PLOP3 01d PLOP3 01e PLOP3 01f I2IP 039 "
        "FCHK 102 VOTE 006"
    ),
    "fp16": "HADD2 030 HFMA2 031 HMUL2 032 HSET2 033 HSETP2 034",
    "fp64": "DMUL 028 DADD 029 DSETP 02a DFMA 02b",
    "tensor": "HMMA 036 IMMA 037 HMMA 03c BMMA 03d",
    "mufu": "MUFU 108",
    "conversion": (
        "FLO 100 BREV 101 F2F 104 F2I 105 I2F 106 FRND 107 POPC 109 F2F 110 F2I 111 I2F 112 FRND 113 I2I 038"
    ),
    "global": "LD 180 LDG 181 ST 185 STG 186 ATOM 18a ATOM 18b RED 18e ATOMG 1a8 ATOMG 1a9",
    "local": "LDL 183 STL 187",
    "shared": "LDSM 03b LDS 184 STS 188 ATOMS 18c ATOMS 18d",
    "shuffle": "MOVM 03a SHFL 189 MATCH 1a1",
    "constant": "LDC 182",
    "barrier": "BAR 11d MEMBAR 192 ERRBAR 1ab CCTL 18f",
    "control": (
        "BSYNC 141 BREAK 142 CALL 143 CALL 144 BSSY 145 YIELD 146 BRA 147 WARPSYNC 148 BRX 149 "
        "JMP 14a JMX 14c EXIT 14d LEPC 14e RTT 14f RET 150 RPCMOV 152 RPCMOV 153 RPCMOV 154 "
        "BMOV 155 BMOV 156 BMOV 157 BRXU 158 JMXU 159 KILL 15b BPT 15c NANOSLEEP 15d"
    ),
    "uniform": (
        "UMOV 082 UP2UR 083 UR2UP 084 VOTEU 086 USEL 087 UISETP 08c UIADD3 090 ULEA 091 ULOP3 092 "
        "UPRMT 096 UIADD3 097 USHF 099 USGXT 09a UBMSK 09b UPLOP3 09c UPLOP3 09d UPLOP3 09e "
        "UPLOP3 09f UIMAD 0a4 UIMAD 0a5 ULDC 0b8 ULDC 0b9 ULDC 0bb UCLEA 0bc UFLO 0bd UBREV 0be "
        "UPOPC 0bf R2UR 1c2 S2UR 1c3"
    ),
    "other": (
        "CS2R 005 NOP 118 S2R 119 DEPBAR 11a B2R 11c R2B 11e CCTLL 190 CCTLT 191 QSPC 1aa "
        "GETLMEMBASE 1c0 SETLMEMBASE 1c1"
    ),
}


def _table() -> dict[int, tuple[str, str]]:
    table = {}
    for pipe, text in _NAMES.items():
        words = text.split()
        for name, opcode in zip(words[::2], words[1::2], strict=True):
            table[int(opcode, 16)] = (name, pipe)
    return table


OPCODES = _table()
"""Mnemonic and pipe by opcode; those of graphics and textures are left out."""
PIPES = tuple(_NAMES)
"""The names of the pipes, in a sensible order."""
