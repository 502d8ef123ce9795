"""Check that TensorFlow can use a GPU in this container, then execute the command.

    gpu-start COMMAND [ARGUMENT...]

The image's entry point executes this program. If there is nothing to report, it prints nothing.
Otherwise, it prints one paragraph to standard error: the problem and the remedy. The variable
IMGBUILD_GPU decides what it does if TensorFlow cannot use any GPU:

- not set: start the command
- require: exit with code 3
- off: skip the check

The check needs no TensorFlow, and creates no CUDA context, because a context costs 0.13 s and 526
MiB of GPU memory. It queries NVML (0.01 s). If NVML cannot show whether CUDA starts, it calls
`cuInit` (0.1 to 0.2 s on a working GPU). It runs in a child process, because a driver can hang or
crash. Times and error codes were measured on an H200 with driver 580.159.04.

The image's own Python runs this program: 3.6 and later.
"""

import ctypes
import glob
import json
import os
import resource
import select
import signal
import stat
import sys
from collections import OrderedDict, namedtuple

FACTS = "/opt/imgbuild/gpu.json"
DRIVER = "/proc/driver/nvidia/version"
DEVICES = "/dev"
UVM = DEVICES + "/nvidia-uvm"
VARIABLE = "CUDA_VISIBLE_DEVICES"
WITH_GPUS = (
    "Start the container with GPUs: `docker run --gpus all`, `apptainer run --nv`, or a limit for "
    "nvidia.com/gpu in Kubernetes."
)
#: Kinds of code that an image has for a GPU.
NATIVE, PTX, NOTHING = "machine code", "PTX", "nothing"
#: The values of IMGBUILD_GPU.
UNSET, REQUIRE, OFF = "", "require", "off"
#: Exit codes, as imgbuild has them: an invalid value, and a machine that lacks something.
INVALID, UNABLE = 2, 3
#: Timeout for the driver, in seconds.
PATIENCE = 20
#: Address space with which CUDA starts (`ulimit -v`), in bytes. It does not start with 8 GB.
ENOUGH_SPACE = 32_000_000_000
#: What a CUDA context takes of the memory of an H200, in bytes. Smaller GPUs need less.
CONTEXT = 526 << 20
#: Variables in which Open MPI, Intel MPI and Slurm set the local rank.
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
#: Values of NVML's compute mode and MIG mode. Source: nvml.h.
PROHIBITED, MIG = 2, 1
#: Attributes of a device in CUDA's driver interface: major and minor capability. Source: cuda.h.
MAJOR, MINOR = 75, 76
#: Errors of CUDA's driver interface. Source: cuda.h, CUresult.
OUT_OF_MEMORY, STUB, NO_DEVICE, INVALID_DEVICE, NO_PROC, UNKNOWN = 2, 34, 100, 101, 304, 999
OTHER_ERRORS = {
    802: "the GPUs are connected by NVSwitch, and the host's fabric manager does not run. Start "
    "the service nvidia-fabricmanager on the host.",
    803: "the driver's libraries in the container do not match the loaded driver. Restart the host "
    "after an update of the driver, and mount no driver files of your own.",
    804: "a forward compatibility package (cuda-compat) hides the driver, and this GPU does not "
    "support it. Remove the package from LD_LIBRARY_PATH.",
}

#: A GPU. ``capability`` is (major, minor); ``free`` and ``total`` are bytes, or None if unknown.
#: (Importing `typing` takes longer than querying the driver.)
Gpu = namedtuple("Gpu", "name uuid capability free total mode")  # noqa: PYI024
#: What NVML says: the driver's version, the GPUs, and whether a GPU is divided by MIG.
Answers = namedtuple("Answers", "driver gpus divided")  # noqa: PYI024
#: The paragraph to print, empty if there is none, and whether TensorFlow can use any GPU.
Verdict = namedtuple("Verdict", "text usable")  # noqa: PYI024


class Memory(ctypes.Structure):
    """``nvmlMemory_t`` of nvml.h."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def main():
    """Check, then execute the command; return an exit code only if the command does not start."""
    mode = os.environ.get("IMGBUILD_GPU", UNSET)
    if mode not in {UNSET, REQUIRE, OFF}:
        say(f"IMGBUILD_GPU is `{mode}`. Set it to `{REQUIRE}` or `{OFF}`, or unset it.")
        return INVALID
    if mode != OFF:
        verdict = ask_in_child()
        ends = mode == REQUIRE and not verdict.usable
        if verdict.text and (ends or is_first_rank()):
            say(f"{verdict.text} {describe_mode(ends, verdict)}")
        if ends:
            return UNABLE
    return os.execv("/usr/bin/env", ["env", "--", *sys.argv[1:]])  # noqa: S606


def say(text):
    """Print a paragraph."""
    sys.stderr.write(f"imgbuild: {text}\n")
    sys.stderr.flush()


def describe_mode(ends, verdict):
    """Return the sentences about what happens now."""
    if ends:
        return "The program does not start, because IMGBUILD_GPU is `require`."
    if verdict.usable:
        return "To skip this check, set IMGBUILD_GPU=off."
    return (
        "The program starts anyway. To end the container instead, set IMGBUILD_GPU=require; to "
        "skip this check, set IMGBUILD_GPU=off."
    )


def is_first_rank():
    """Return whether this process has local rank 0. Of the ranks that go on, only it prints."""
    return all(os.environ.get(name, "0") == "0" for name in LOCAL_RANKS)


def ask_in_child():
    """Run the check in a child process, because the driver can hang or crash."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            verdict = find_verdict()
        except Exception as error:  # noqa: BLE001 - the command starts all the same
            verdict = refuse(
                f"the check of the GPU failed ({error!r}). Report it, or set IMGBUILD_GPU=off."
            )
        os.write(writing, json.dumps(verdict).encode("ascii"))
        os._exit(0)
    os.close(writing)
    answered = select.select([reading], [], [], PATIENCE)[0]
    said = os.read(reading, 1 << 16) if answered else b""
    os.close(reading)
    if not answered:
        os.kill(child, signal.SIGKILL)
        return refuse(
            f"the NVIDIA driver did not answer in {PATIENCE} s. Run `nvidia-smi` on the host. If "
            "it hangs, too, restart the host."
        )
    os.waitpid(child, 0)
    if not said:
        return refuse("the NVIDIA driver crashed. Run `nvidia-smi` on the host, and restart it.")
    return Verdict(*json.loads(said.decode("ascii")))


def find_verdict():
    """Return whether TensorFlow can use the GPUs of this container, and if not, why."""
    with open(FACTS, encoding="utf-8") as stream:
        facts = json.load(stream)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return refuse(explain_missing(str(error)))
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == STUB:
        return refuse(explain_stub())
    answers = ask_nvml()
    old = explain_old(answers.driver if answers else read_driver(), version.value, facts)
    if old:
        return refuse(old)
    gpus = select_gpus(answers) if answers and not has_doubts(answers) else None
    if gpus is None:
        code = cuda.cuInit(0)
        if code:
            return refuse(explain_code(code, answers))
        gpus = ask_cuda(cuda, answers)
    return judge(gpus, facts)


def refuse(reason):
    """Return the verdict that TensorFlow cannot use any GPU, with the reason and what to do."""
    return Verdict(f"TensorFlow cannot use a GPU: {reason}", usable=False)


# --- what the driver says -----------------------------------------------------------------------


def ask_nvml():
    """Return NVML's answers, or None if NVML is missing or does not work.

    The container has NVML only if NVIDIA_DRIVER_CAPABILITIES contains `utility`. NVML ignores
    CUDA_VISIBLE_DEVICES, and works without /dev/nvidia-uvm, which CUDA needs.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    count, text = ctypes.c_uint(), ctypes.create_string_buffer(96)
    if nvml.nvmlInit_v2() or nvml.nvmlSystemGetDriverVersion(text, len(text)):
        return None
    driver = decode(text)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return None
    gpus, divided = [], False
    for index in range(count.value):
        device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        memory, mode, mig, pending = Memory(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
            return None
        name = ask_text(nvml.nvmlDeviceGetName, device)
        uuid = ask_text(nvml.nvmlDeviceGetUUID, device)
        get_capability = nvml.nvmlDeviceGetCudaComputeCapability
        if get_capability(device, ctypes.byref(major), ctypes.byref(minor)):
            return None
        known = not nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
        nvml.nvmlDeviceGetComputeMode(device, ctypes.byref(mode))
        if hasattr(nvml, "nvmlDeviceGetMigMode"):  # drivers before 450 have no MIG
            nvml.nvmlDeviceGetMigMode(device, ctypes.byref(mig), ctypes.byref(pending))
        divided = divided or mig.value == MIG
        free, total = (memory.free, memory.total) if known else (None, None)
        gpus.append(Gpu(name, uuid, (major.value, minor.value), free, total, mode.value))
    return Answers(driver, gpus, divided)


def ask_text(function, device):
    """Return a text property of a device."""
    text = ctypes.create_string_buffer(96)
    function(device, text, len(text))
    return decode(text)


def decode(text):
    """Decode a C string, and remove control characters."""
    return "".join(filter(str.isprintable, text.value.decode("utf-8", "replace")))


def read_driver():
    """Return the driver's version from the kernel module's file; empty if there is none."""
    try:
        with open(DRIVER, encoding="utf-8", errors="replace") as stream:
            return next((word for word in stream.readline().split() if word[:1].isdigit()), "")
    except OSError:
        return ""


def ask_cuda(cuda, answers):
    """Return the GPUs that CUDA uses in this process. Call `cuInit` first.

    Memory and mode come from NVML, and are None without it.
    """
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    known = {gpu.uuid: gpu for gpu in answers.gpus} if answers and not answers.divided else {}
    gpus = []
    for index in range(count.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        name, number = ctypes.create_string_buffer(96), (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, len(name), device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, device)
        if hasattr(cuda, "cuDeviceGetUuid"):  # CUDA 9.2 and newer
            cuda.cuDeviceGetUuid(ctypes.byref(number), device)
        uuid = format_uuid(bytes(number))
        gpu = Gpu(decode(name), uuid, (major.value, minor.value), None, None, None)
        gpus.append(known.get(uuid, gpu))
    return gpus


def format_uuid(number):
    """Return the 16 bytes of a GPU's UUID as NVML writes them."""
    digits = number.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "GPU-" + "-".join(parts)


def has_doubts(answers):
    """Return whether CUDA may fail to start although NVML works. Only `cuInit` can tell then."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return (
        not answers.gpus
        or answers.divided
        or (limit != resource.RLIM_INFINITY and limit < ENOUGH_SPACE)
        or not os.path.exists("/proc/self")
        or not (is_wsl() or can_open(UVM))
    )


def select_gpus(answers):
    """Return the GPUs that CUDA_VISIBLE_DEVICES names; all if it is not set.

    None: NVML cannot resolve it. CUDA numbers GPUs by speed and NVML by bus, so their numbers agree
    only if the GPUs are equal.
    """
    value = os.environ.get(VARIABLE)
    if value is None:
        return answers.gpus
    alike = len({(gpu.name, gpu.capability) for gpu in answers.gpus}) == 1
    selected = []
    for entry in map(str.strip, value.split(",")):
        if entry.isdigit() and alike and int(entry) < len(answers.gpus):
            found = [answers.gpus[int(entry)]]
        else:
            found = [gpu for gpu in answers.gpus if entry[4:] and gpu.uuid.startswith(entry)]
        if len(found) != 1 or found[0] in selected:
            return None
        selected += found
    return selected


# --- why CUDA does not start ----------------------------------------------------------------------


def explain_missing(error):
    """Return why the driver's library cannot be loaded, from the loader's message."""
    if "file too short" in error:
        return (
            "libcuda.so.1 is an empty file. A mount names a file that the host does not have. "
            "Remove the mount, and start the container with `docker run --gpus all`."
        )
    if "No such file" not in error:
        return (
            f"the driver's library cannot be loaded ({error}). Remove any mount or folder of "
            "LD_LIBRARY_PATH that replaces it."
        )
    if not (is_wsl() or glob.glob(DEVICES + "/nvidia*")):
        return (
            f"the container has no NVIDIA driver (libcuda.so.1 is missing). {WITH_GPUS} If Docker "
            "has no GPUs to give, install NVIDIA's container toolkit."
        )
    asked = os.environ.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if asked and not {"compute", "all"} & set(asked.split(",")):
        return (
            "the container has the GPU, but not the driver's library libcuda.so.1, because "
            f"NVIDIA_DRIVER_CAPABILITIES is `{asked}`. Set it to `compute,utility`."
        )
    return (
        "the container has the GPU's device files, but not the driver's library libcuda.so.1. "
        f"{WITH_GPUS}"
    )


def explain_stub():
    """Return where the stub of the CUDA toolkit comes from."""
    path = os.environ.get("LD_LIBRARY_PATH", "")
    return (
        "libcuda.so.1 is the stub of the CUDA toolkit, not the driver. Remove the mount that puts "
        f"it into the container, or its folder from LD_LIBRARY_PATH, which is `{path}`."
    )


def explain_old(driver, cuda, facts):
    """Return why the driver is too old for the image's CUDA; empty if it is not.

    ``cuda`` is the newest CUDA that the driver knows, for example 11040. With a forward
    compatibility package, it can be newer than the driver by itself supports. If the driver's
    version is unknown, only ``cuda`` is compared.
    """
    if cuda >= number_cuda(facts["cuda"]):
        return ""
    if not driver:
        if cuda >= number_cuda(facts["driver_cuda"]):
            return ""
        known = f"{cuda // 1000}.{cuda % 1000 // 10}"
        return (
            f"the driver supports CUDA {known}, and this image needs driver {facts['driver']}, "
            f"which supports CUDA {facts['driver_cuda']}, or a newer one. Update the driver of the "
            "host, or choose another image: `imgbuild list`."
        )
    least = split_version(facts["driver"])
    if split_version(driver)[: len(least)] >= least:
        return ""
    return (
        f"driver {driver} is older than {facts['driver']}, which CUDA {facts['cuda']} of this "
        "image needs. Update the driver of the host, or choose another image: `imgbuild list "
        f"--driver {driver}`."
    )


def explain_code(code, answers):
    """Return why `cuInit` fails with this code."""
    if code == NO_DEVICE:
        return explain_files() or explain_variable(answers) or explain_division(answers)
    if code == INVALID_DEVICE:
        value = os.environ.get(VARIABLE, "")
        return f"{VARIABLE} is `{value}`, which names a GPU twice. Name each GPU once."
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if code == OUT_OF_MEMORY and resource.RLIM_INFINITY != limit < ENOUGH_SPACE:
        return (
            "CUDA cannot reserve its addresses, because the address space is limited to "
            f"{limit / 1e9:.0f} GB (`ulimit -v`). Batch systems set this limit: raise it to 32 GB "
            "or more, or remove it."
        )
    if code == UNKNOWN and not (is_wsl() or can_open(UVM)):
        return explain_uvm()
    if code == NO_PROC and not os.path.exists("/proc/self"):
        return "CUDA needs /proc, which is not mounted in the container. Mount it."
    known = f"CUDA does not start (cuInit: error {code}). Check the host with `nvidia-smi`."
    return OTHER_ERRORS.get(code, known)


def explain_files():
    """Return the fault of the GPU's device files; empty if there is none."""
    if is_wsl():
        return ""
    numbered = sorted(glob.glob(DEVICES + "/nvidia[0-9]*"))
    if not numbered:
        return (
            f"the container has the driver, but no GPU: there is no {DEVICES}/nvidia0. {WITH_GPUS}"
        )
    faults = map(explain_file, [DEVICES + "/nvidiactl", *numbered])
    return next(filter(None, faults), "")


def explain_uvm():
    """Return the fault of the device for unified memory, which a module of its own makes."""
    if os.path.exists(UVM):
        return explain_file(UVM)
    return (
        f"the device {UVM} is missing. Load its module on the host with `nvidia-modprobe -u -c=0`, "
        "then start the container again."
    )


def explain_file(path):
    """Return the fault of a device file; empty if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return f"the device file {path} is missing. {WITH_GPUS}"
    if not stat.S_ISCHR(status.st_mode):
        return f"{path} is not a device file. Remove the mount or the file."
    if can_open(path):
        return ""
    mode, group = stat.S_IMODE(status.st_mode), status.st_gid
    return (
        f"user {os.getuid()} may not open {path} (mode {mode:04o}, group {group}). Start the "
        f"container with `--group-add {group}`, or as a user who may open it."
    )


def explain_variable(answers):
    """Return how CUDA_VISIBLE_DEVICES hides every GPU; empty if it is not set, or names one."""
    value = os.environ.get(VARIABLE)
    if value is None:
        return ""
    first = value.split(",")[0].strip()
    if first in {"", "-1"}:
        return f"{VARIABLE} is `{value}`, which hides every GPU. Unset it, or name a GPU."
    gpus = answers.gpus if answers else []
    if first in map(str, range(len(gpus))) or any(gpu.uuid.startswith(first) for gpu in gpus):
        return ""
    there = count_gpus(len(gpus)) if gpus else ""
    return (
        f"{VARIABLE} is `{value}`, and there is no GPU `{first}`, so CUDA uses none.{there} "
        "Correct the variable, or unset it."
    )


def count_gpus(number):
    """Return a sentence about the numbers of the GPUs, after a space."""
    return f" The GPUs are 0 to {number - 1}." if number > 1 else " The only GPU is 0."


def explain_division(answers):
    """Return the cause of NO_DEVICE if files and variable are right: MIG, or the host's fault."""
    if answers and answers.divided:
        return (
            "the GPU is divided by MIG, and the container has no instance. Create one on the host "
            "(`nvidia-smi mig`), and give it to the container: `--gpus device=MIG-…`."
        )
    return "CUDA finds no GPU that this container may use. Check the host with `nvidia-smi`."


def can_open(path):
    """Return whether this user can read and write a device."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode) and os.access(path, os.R_OK | os.W_OK)
    except OSError:
        return False


def is_wsl():
    """Return whether this is Windows' subsystem for Linux, which has no /dev/nvidia files."""
    return os.path.exists(DEVICES + "/dxg")


# --- what the image has for a GPU -----------------------------------------------------------------


def judge(gpus, facts):
    """Return the verdict about these GPUs, with warnings."""
    refused, notes = [], []
    for gpu in gpus:
        reason = explain_refusal(gpu, facts)
        if reason:
            refused.append(reason)
        elif find_support(gpu.capability, facts) == PTX and not has_compiled():
            notes.append(
                f"{describe(gpu)}: TensorFlow {facts['tensorflow']} has no machine code for this "
                "GPU. At the first start, the driver compiles TensorFlow's PTX code, which takes "
                f"minutes, and keeps the result in {find_cache()}. If this folder is not on a "
                "volume, mount one there, or each new container compiles again."
            )
    if len(refused) == len(gpus):
        return refuse(" ".join(unique(refused)))
    if refused:
        notes.append(f"TensorFlow will use only some of the GPUs. {' '.join(unique(refused))}")
    named = os.environ.get(VARIABLE)
    if named is not None and len(gpus) < len(named.split(",")):
        notes.append(
            f"{VARIABLE} is `{named}`, but CUDA uses only {len(gpus)} of these GPUs: it ignores an "
            "entry that does not exist, and every entry after it. Correct the variable."
        )
    return Verdict(" ".join(unique(notes)), usable=True)


def find_cache():
    """Return the folder in which the driver keeps compiled code."""
    return os.environ.get("CUDA_CACHE_PATH") or os.path.expanduser("~/.nv/ComputeCache")


def has_compiled():
    """Return whether the driver has compiled code before, in this container or on this volume."""
    try:
        return bool(os.listdir(find_cache()))
    except OSError:
        return False


def explain_refusal(gpu, facts):
    """Return why TensorFlow cannot use a GPU; empty if it can."""
    if find_support(gpu.capability, facts) == NOTHING:
        return explain_no_code(gpu, facts)
    if gpu.mode == PROHIBITED:
        return (
            f"{gpu.name}: its compute mode is `Prohibited`. Change it on the host: `nvidia-smi -c "
            "0`."
        )
    if gpu.free is not None and gpu.free < min(CONTEXT, gpu.total // 16):
        return (
            f"{gpu.name}: other processes hold its memory. {gpu.free >> 20} of {gpu.total >> 20} "
            "MiB are free. End them (`nvidia-smi` on the host lists them), or choose another GPU "
            f"with {VARIABLE}."
        )
    return ""


def explain_no_code(gpu, facts):
    """Return why the image has no code for a GPU, and name an image that has."""
    newest, tensorflow = facts["newest"], facts["tensorflow"]
    capability = format_capability(gpu.capability)
    other = facts["instead"].get(capability)
    remedy = f"To find an image that supports it, run `imgbuild list --gpu-model {capability}`."
    if other:
        remedy = f"Use the image {other}."
    if gpu.capability <= parse(newest):
        return (
            f"{describe(gpu)}: TensorFlow {tensorflow} of this image has no code for it, or not "
            f"for all operations. {remedy}"
        )
    text = (
        f"{describe(gpu)}: CUDA {facts['cuda']} of this image supports no capability above "
        f"{newest}. {remedy}"
    )
    if tensorflow.startswith("1."):
        text += (
            " Most code for TensorFlow 1.x that does not use tf.contrib runs in that image with "
            "`import tensorflow.compat.v1 as tf` and `tf.disable_v2_behavior()`; from TensorFlow "
            "2.16 on, it also needs TF_USE_LEGACY_KERAS=1."
        )
    return text


def find_support(capability, facts):
    """Return the kind of code that the image has for a GPU.

    imgbuild's matrix has the same rule (`kernel_support`). Machine code for X.y runs on X.z if
    z >= y. The driver compiles PTX for newer GPUs, but the libraries of a CUDA release have code up
    to its newest capability only.
    """
    for native in map(parse, facts["native"]):
        if native[0] == capability[0] and native[1] <= capability[1]:
            return NATIVE
    older = [ptx for ptx in map(parse, facts["ptx"]) if ptx <= capability]
    return PTX if older and capability <= parse(facts["newest"]) else NOTHING


def describe(gpu):
    """Return the name of a GPU with its capability."""
    return f"{gpu.name} (compute capability {format_capability(gpu.capability)})"


def format_capability(capability):
    """Return a capability as NVIDIA writes it, for example 8.6."""
    return "{}.{}".format(*capability)


def parse(capability):
    """Return a capability as numbers, which can be compared."""
    major, minor = capability.split(".")
    return int(major), int(minor)


def number_cuda(release):
    """Return a release of CUDA as the driver numbers it: 11080 for 11.8."""
    major, minor = release.split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def split_version(version):
    """Return the numbers of a driver's version."""
    return [int(part) for part in version.split(".") if part.isdigit()]


def unique(texts):
    """Return texts without repetitions, for several equal GPUs."""
    return list(OrderedDict.fromkeys(texts))


if __name__ == "__main__":
    sys.exit(main())
