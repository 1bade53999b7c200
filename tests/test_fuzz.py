"""Laws 3 and 4 in C++: every encoder and decoder of the table, in every variant, under sanitizers. The driver is tests/fuzz/decode.cpp."""
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

SEED, SECONDS = 20240229, 8
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


@pytest.fixture(scope="module")
def driver(kit, tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "empty.cpp").write_text("int main() {}\n")
    if subprocess.run([compiler, *SANITIZE, "empty.cpp", "-o", "empty"], cwd=folder, capture_output=True).returncode:
        pytest.skip("this g++ has no sanitizers")
    root = kit.HERE.parent
    # One instruction set: clones are chosen before the sanitizers are ready. -O1, since this is compiled each time.
    flags = ["-std=c++17", "-O1", "-g1", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-DTHINWIRE_CLONES=0", *SANITIZE]
    sources = [root / "tests" / "fuzz" / "decode.cpp", *(root / "cpu").glob("*.cpp")]
    sources.sort(key=lambda source: -source.stat().st_size)  # what takes longest first

    def compile_one(source):
        target = folder / (source.stem + ".o")
        command = [compiler, *flags, f"-I{root / 'include'}", f"-I{root / 'cpu'}", "-c", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return str(target)

    with ThreadPoolExecutor(kit.os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    subprocess.run([compiler, *SANITIZE, "-fopenmp", *objects, "-o", "decode"], cwd=folder, check=True)
    return folder / "decode"


def test_no_sanitizer_has_anything_to_say(driver, kit, tmp_path):
    codecs = [codec for codec in kit.everything() if isinstance(codec.kernels, kit.tw._native.Kernels)]
    (tmp_path / "params").write_text("".join(f"{codec.name} {codec.params.hex() or '-'}\n" for codec in codecs))
    done = subprocess.run(
        [str(driver), str(tmp_path / "params"), str(SEED), str(SECONDS)], capture_output=True, text=True, timeout=300,
        env={**kit.os.environ, "OMP_NUM_THREADS": "1", "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1"},
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stdout[-1000:] + done.stderr[-5000:]
    assert f"of {len(codecs)} codecs" in done.stdout
