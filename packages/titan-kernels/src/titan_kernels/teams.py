"""Teams of threads that hold rows in registers; see ``include/titan/team.cuh``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from titan_kernels.platforms import multiprocessors

__all__ = ["TEAM_MAX_THREADS", "TeamPlan", "plan_teams"]

TEAM_MAX_THREADS = 512
_WARP = 32


@dataclass(frozen=True)
class TeamPlan:
    """How threads share rows.

    Args:
        team: Threads of a row.
        teams: Rows that a block works on at the same time.
    """

    team: int
    teams: int

    @property
    def block(self) -> tuple[int, int, int]:
        """The block's dimensions."""
        return self.team, self.teams, 1

    def grid(self, rows: int, device: torch.device, threads_per_multiprocessor: int) -> int:
        """Blocks that fill the device once; each walks over many rows."""
        resident = max(1, threads_per_multiprocessor // (self.team * self.teams))
        return min(-(-rows // self.teams), multiprocessors(device) * resident)


def plan_teams(columns: int, elements_per_thread: int, block: int) -> TeamPlan:
    """The plan for rows of up to :data:`TEAM_MAX_THREADS` times ``elements_per_thread`` elements.

    Args:
        columns: Elements of a row.
        elements_per_thread: Of them, how many a thread holds.
        block: Threads of a block, where several teams fit into it.
    """
    warps = max(1, -(-columns // (_WARP * elements_per_thread)))
    team = _WARP * warps
    return TeamPlan(team, max(1, block // team))
