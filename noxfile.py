"""The test sessions; `./run_tests.sh` runs the default ones.

    nox -l                     list them
    nox -s tests -- -k scaler  pass arguments to pytest

Every session installs with pip under constraints.txt, and torch first and by its exact version: a
loose range would fetch gigabytes of CUDA libraries.
"""

from __future__ import annotations

import itertools
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "layers", "tests", "isolated", "train", "docs"]

ROOT = Path(__file__).parent
PACKAGES = {
    "titan_kernels": "packages/titan-kernels",
    "titan_alloc": "packages/titan-alloc",
    "titan_core": "packages/titan-core",
    "titan_parallel": "packages/titan-parallel",
    "titan_pretrain": "apps/pretrain",
    "titan_bench": "apps/bench",
}
CONSTRAINTS = ROOT / "constraints.txt"
TORCH = next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))
# pip would compile whole packages; Python compiles the small part that is imported, once.
os.environ["PIP_COMPILE"] = "0"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Several ranks share a machine in the tests; more threads than cores would slow each other down.
TEST_ENV = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default", "HF_HUB_OFFLINE": "1"}
# More workers than this would starve the tests that start several processes.
WORKERS = min(len(os.sched_getaffinity(0)), 4)
PARALLEL = ("-c", "pyproject.toml", "--numprocesses", str(WORKERS), "--dist", "worksteal")
QUICK = ("-m", "not gpu and not slow")

PROJECTS = {name: nox.project.load_toml(ROOT / path / "pyproject.toml") for name, path in PACKAGES.items()}
DISTRIBUTIONS = {project["project"]["name"]: name for name, project in PROJECTS.items()}


def install(session: nox.Session, *arguments: str, torch: str | None = None) -> None:
    """pip install under the constraints, with torch (if any) first and by its exact version."""
    constraints = CONSTRAINTS
    if torch is not None:
        constraints = Path(session.virtualenv.location, "constraints.txt")
        others = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("torch==")]
        constraints.write_text("\n".join([*others, torch, ""]))
        session.install("--constraint", str(constraints), torch)
    session.install("--constraint", str(constraints), *arguments)


def group(kind: str, *names: str) -> list[str]:
    """The dependencies of a group that the packages declare."""
    groups = (nox.project.dependency_groups(PROJECTS[name], kind) for name in names)
    return sorted(set(itertools.chain.from_iterable(groups)))


def test_group(*names: str) -> list[str]:
    """The test dependencies that the packages declare."""
    return group("test", *names)


def third_party() -> list[str]:
    """What the packages declare for run time, without torch and each other."""
    declared = set(itertools.chain.from_iterable(requirements(name) for name in PACKAGES))
    return sorted(each for each in declared if not each.startswith(("torch>", "torch-titan-")))


def install_all(session: nox.Session, *arguments: str, torch: str = TORCH) -> None:
    """All packages in one environment, editable, and the further arguments."""
    editable = itertools.chain.from_iterable(("--editable", str(ROOT / path)) for path in PACKAGES.values())
    install(session, *editable, *arguments, torch=torch)


def pytest(session: nox.Session, *arguments: str) -> None:
    """Run pytest with the repository's settings, on several cores."""
    session.run("python", "-m", "pytest", *PARALLEL, *arguments, env=TEST_ENV)


@nox.session
def lint(session: nox.Session) -> None:
    """Style: ruff."""
    install(session, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Types: mypy, strict, on the packages and the set-up scripts."""
    # mypy reads the packages where they lie (mypy_path), so none is built.
    install(session, *third_party(), "mypy", "types-psutil", torch=TORCH)
    sources = [str(ROOT / path / "src" / name) for name, path in PACKAGES.items()]
    scripts = ("choose_torch.py", "setup_venv.py", "new_kernel.py")
    builder = str(ROOT / "packages/titan-kernels/build_tools/kernel_build")
    session.run("mypy", *sources, *(f"scripts/{name}" for name in scripts), builder)


@nox.session
def layers(session: nox.Session) -> None:
    """Architecture: packages import downwards only."""
    install(session, "import-linter")
    # grimp reads the sources and imports nothing, so the packages need not be installed.
    sources = os.pathsep.join(str(ROOT / path / "src") for path in PACKAGES.values())
    session.run("lint-imports", env={"PYTHONPATH": sources})


@nox.session
def tests(session: nox.Session) -> None:
    """All tests, all packages in one environment."""
    # ruff formats the room of a new operator.
    install_all(session, *test_group(*PACKAGES), *group("kernel-build", "titan_kernels"), "ruff")
    pytest(session, *session.posargs)


@nox.session
@nox.parametrize("torch", ["2.11.0", "2.12.1", "2.13.0", "2.14.1"])
def compat(session: nox.Session, torch: str) -> None:
    """All tests on another PyTorch release; not among the defaults."""
    install_all(session, *test_group(*PACKAGES), torch=f"torch=={torch}")
    pytest(session, *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """The tests that need a GPU, in the environment that run_train.sh made for this machine's cards."""
    venv = prepare_train_venv(session, Path(os.environ.get("TITAN_VENV", ROOT / ".venv")))
    python = str(venv / "bin/python")
    # What the environment was made with: it holds the torch that is there.
    pip = (python, "-m", "pip", "install", "-q", "--constraint", str(venv / "titan-constraints.txt"))
    session.run(*pip, *test_group(*PACKAGES), external=True)
    # The operators' tests run on either device; here on the GPU, against the compiled kernels.
    environment = {"TITAN_TEST_DEVICE": "cuda"}
    session.run(python, "-m", "pytest", "-m", "gpu", *session.posargs, env=environment, external=True)
    session.run(python, "-m", "pytest", "packages/titan-kernels/tests/ops", env=environment, external=True)


def prepare_train_venv(session: nox.Session, venv: Path) -> Path:
    """An environment as run_train.sh makes it, without training."""
    session.run("./run_train.sh", "--help", env={"TITAN_VENV": str(venv)}, external=True, silent=True)
    return venv


@nox.session
def isolated(session: nox.Session) -> None:
    """Each package as a wheel, alone with what it declares; its own tests on top, but the slow ones.

    torch and its dependencies are installed once and shared by a path file, for every package
    declares torch; everything else is installed anew for each.  Installing and importing keep one core
    busy, so several packages take their turn at the same time, each on one core.
    """
    undeclared = [name for name in PACKAGES if not any(r.startswith("torch>") for r in requirements(name))]
    if undeclared:
        session.error(f"{', '.join(undeclared)}: torch is not declared, so it must not be shared")
    work = Path(session.virtualenv.location, "isolated")
    base, wheels = work / "torch", work / "wheels"
    install(session, "pip>=25.1", "virtualenv")
    if not (base / "torch").is_dir():
        install(session, "--target", str(base), TORCH)
    shutil.rmtree(wheels, ignore_errors=True)
    chosen = [name for name in PACKAGES if not session.posargs or name in session.posargs]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda name: build_wheel(session, name, wheels), PACKAGES))
        # The last packages declare the others and take longest, so they come first.
        list(pool.map(lambda name: test_alone(session, name, work / name, base, wheels), reversed(chosen)))


def build_wheel(session: nox.Session, name: str, wheels: Path) -> None:
    """Build the wheel of a package."""
    pip = ["python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels)]
    session.run(*pip, str(ROOT / PACKAGES[name]), silent=True)


def requirements(name: str) -> list[str]:
    """What a package declares for run time."""
    return list(PROJECTS[name]["project"]["dependencies"])


def declared_siblings(name: str) -> set[str]:
    """The packages of this repository that ``name`` declares, and those that they declare."""
    found = {DISTRIBUTIONS[r.split(">")[0]] for r in requirements(name) if r.startswith("torch-titan-")}
    return found.union(*(declared_siblings(sibling) for sibling in found))


def test_alone(session: nox.Session, name: str, venv: Path, base: Path, wheels: Path) -> None:
    """Install one wheel with what it declares, import all of it, then run its tests."""
    session.run("virtualenv", "-q", "--clear", str(venv), silent=True)
    python = str(venv / "bin/python")
    site = next(venv.glob("lib/python*/site-packages"))
    (site / "shared-torch.pth").write_text(f"{base}\n")
    built = [
        str(next(wheels.glob(f"torch_{each}-*.whl"))) for each in sorted({name, *declared_siblings(name)})
    ]
    pip = [python, "-m", "pip", "install", "-q", "--constraint", str(CONSTRAINTS)]
    session.run(*pip, *built, external=True, silent=True)
    # Before the test dependencies come: they could stand in for one that is not declared.
    session.run(python, "scripts/import_all.py", name, env=TEST_ENV, external=True, silent=True)
    if name == "titan_pretrain":
        run_a_job(session, venv)
    session.run(*pip, *test_group(name), external=True, silent=True)
    tests = ["-c", "pyproject.toml", *QUICK, str(ROOT / PACKAGES[name] / "tests")]
    output = session.run(python, "-m", "pytest", *tests, env=TEST_ENV, external=True, silent=True)
    session.log(f"{name}: {str(output).strip().splitlines()[-1]}")


def run_a_job(session: nox.Session, venv: Path) -> None:
    """Train, resume and export; what a function imports is needed only then."""
    titan, runs = str(venv / "bin/titan-pretrain"), venv / "runs"
    train = [titan, "--config", "llama3_debug", "--set", f"run.dir={runs}", "--set", "training.seq_len=32"]
    for steps, resume in ((2, []), (4, ["--resume", "auto"])):
        more = ["--set", "lr.warmup_steps=1", "--set", f"training.steps={steps}", *resume]
        session.run(*train, *more, env=TEST_ENV, external=True, silent=True)
    run = next(runs.iterdir())
    for path in ("metrics.jsonl", "report.html", "tensorboard", "checkpoints/step-00000004"):
        if not (run / path).exists():
            session.error(f"{run / path} is missing")
    export = [titan, "export", "--to", "hf", str(run), str(run / "hf")]
    session.run(*export, env=TEST_ENV, external=True, silent=True)


@nox.session(venv_backend="none")
def train(session: nox.Session) -> None:
    """The demo as a user types it, in an environment of its own: train, resume, export, measure."""
    work = ROOT / ".nox/train"
    runs = work / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    environment = {"TITAN_VENV": str(work / "venv")}
    run_train = ["./run_train.sh", "--set", f"run.dir={runs}"]
    prepare_train_venv(session, work / "venv")
    session.run("python", "scripts/check_demo.py", str(runs), *run_train, env=environment, external=True)
    bench = str(work / "venv/bin/titan-bench")
    session.run(bench, "trainer", "--rounds", "32", "--require", "0.97", external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation; warnings are errors."""
    install(session, "-r", "docs/requirements.txt")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")


@nox.session
def sass(session: nox.Session) -> None:
    """Check the reading of machine code against nvdisasm, which a Triton wheel of 190 MB brings along."""
    install_all(session, *test_group("titan_kernels"), *group("kernel-build", "titan_kernels"))
    tools = Path(session.virtualenv.location, "nvdisasm")
    session.run("python", "-m", "pip", "install", "-q", "--no-deps", "--target", str(tools), "triton==3.6.0")
    # Releases after 3.6 bring an nvdisasm that refuses sm_70.
    nvdisasm = tools / "triton/backends/nvidia/bin/nvdisasm"
    environment = {**TEST_ENV, "TITAN_NVDISASM": str(nvdisasm)}
    session.run("python", "-m", "pytest", "packages/titan-kernels/tests/compile", env=environment)


@nox.session(name="new-kernel")
def new_kernel(session: nox.Session) -> None:
    """Make the room of a new operator: `nox -s new-kernel -- my_op`; see docs/adding-a-kernel.md."""
    install(session, "ruff")
    session.run("python", "scripts/new_kernel.py", *session.posargs)
