# What a newcomer needs. Everything else is the imgbuild command itself.
#
#   make demo     set up what is missing, build TensorFlow 2.2, and say how to use the image
#   make quick    the same set-up, then make check, and one image built and tested with two suites
#   make test     the same set-up, then make check, and the end-to-end tests but those of make nightly
#   make check    the checks and tests that need no engine: what CI says first
#   make nightly  the tests that take longest: every fault of a push, made-up input, stand-ins; PART=2/6 is a part
#   make standin  the twenty images of the stack ubuntu, built and tested on stand-ins
#   make derived  write what is made of the matrix and the code: Dockerfiles, schema, tables, golden files
#   make unit     the unit tests alone, no engine
#   make site     the documentation and the catalogue as a site, in the folder site (SITE)
#   make gpu      the suites for GPUs, on a machine with one: of GPU_IMAGES in its engine, or of a BUNDLE
#   make bench    the benchmarks, hours, and their tables into docs/evidence.md; needs root
#   make clean    remove the virtual environment and the caches of the tools

VENV := .venv
BIN := $(VENV)/bin
# The environment of imgbuild itself, and with what checks and tests need.
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
REQUIREMENTS := build/requirements.txt
DEV_REQUIREMENTS := build/requirements-dev.txt
# Of the documentation's generator, which has an environment of its own: nothing else needs it.
SITE_VENV := $(VENV)/site
SITE_REQUIREMENTS := build/requirements-site.txt
SITE ?= site
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# imgbuild uses the checkout of another user only if it is named.
export IMGBUILD_PROJECT := $(CURDIR)

# Tried by running it: a name on PATH may be a version manager's shim for nothing.
FIND_PYTHON = for name in python3.13 python3.12 python3.11 python3; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
	echo "$$name" && break; done; true
MAY_INSTALL = [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null
# Without root it says what to install, and ends.
INSTALL = install() { \
	$(MAY_INSTALL) || { echo "Missing: install $$*, such as by: sudo apt-get install -y $$*" >&2; exit 3; }; \
	echo "+ apt-get install -y $$*"; apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$$@" >/dev/null; }

# No target is called "build": that is the source folder.
.PHONY: help demo quick test check nightly standin derived unit site gpu bench machine base-tools stub-tools browser compose clean own-venv
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   //p' Makefile

demo: machine
	$(BIN)/imgbuild build --tf 2.2 --stack debian

quick: machine base-tools check
	$(BIN)/pytest tests/e2e/test_faults.py -k test_only_what_changed_is_rebuilt

# Of the end-to-end tests those which make the others' images, or watch the clock or all containers.
FIRST := $(patsubst %,tests/e2e/test_%.py,build run_job running_suites sbom tutorial)

test: machine base-tools browser compose check
	$(BIN)/pytest $(FIRST) -m "not nightly"
	$(BIN)/pytest -n 2 tests/e2e $(FIRST:%=--ignore=%) -m "not nightly"

check: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/mypy tests/unit
	$(BIN)/mypy tests/e2e
	$(BIN)/mypy tests/fuzz
	$(BIN)/mypy tests/standin
	$(BIN)/mypy tests/gpu
	$(BIN)/mypy benchmarks
	$(BIN)/pytest -q -n auto --dist worksteal tests/unit
	$(BIN)/imgbuild render --check || { echo "Out of date: make derived writes it." >&2; exit 1; }
	$(BIN)/imgbuild lock --check
	$(BIN)/imgbuild audit --offline
	@cd tests && ../$(BIN)/python -m support.nightly --report

nightly: $(DEV) machine base-tools stub-tools browser compose
	cd tests && ../$(BIN)/python -m support.nightly $(PART)

standin: $(DEV) machine base-tools stub-tools
	cd tests && ../$(BIN)/python -m standin.family --all

derived: $(DEV)
	$(BIN)/imgbuild render
	IMGBUILD_WRITE_GOLDEN=1 IMGBUILD_WRITE_DOCS=1 $(BIN)/pytest -q tests/unit/test_golden.py \
		tests/unit/docs -k "golden or generated_tables"

unit: $(DEV)
	$(BIN)/pytest -q -n auto --dist worksteal tests/unit

# The catalogue is the site's index.html, and links to the pages that it finds beside it. Without -E,
# Sphinx would not warn again of pages that have not changed.
site: $(SITE_VENV)/.ready
	$(SITE_VENV)/bin/sphinx-build -q -W --keep-going -E -c docs -d $(SITE_VENV)/doctrees . $(SITE)
	$(BIN)/imgbuild catalog --output $(SITE)
	@echo "$(SITE)/docs/index.html"

# GPU_IMAGES are options of imgbuild; what `imgbuild test` says is also written with the machine. A
# BUNDLE is what tests/gpu/bundle.py made of an image, for a machine without Docker.
GPU_IMAGES ?= --gpu
GPU_REPORT ?= reports/gpu
GPU_SUITES := --suite gpu_built --suite gpu_loadable --suite gpu_runs

gpu: $(READY)
ifdef BUNDLE
	$(BIN)/python $(BUNDLE)/chroot_run.py --report $(GPU_REPORT)
else
	@rm -f $(GPU_REPORT)/report.json
	@code=0; $(BIN)/imgbuild test $(GPU_IMAGES) $(GPU_SUITES) --refresh --require-gpu \
		--report $(GPU_REPORT) || code=$$?; \
	[ ! -f $(GPU_REPORT)/report.json ] || $(BIN)/python tests/gpu/gpu_report.py $(GPU_REPORT); \
	exit $$code
endif

bench: machine
	$(BIN)/python benchmarks/commands.py --write
	$(BIN)/python benchmarks/builds.py image --write
	$(BIN)/python benchmarks/builds.py family --write
	$(BIN)/python benchmarks/sizes.py --documented --write
	$(BIN)/python benchmarks/scale.py --write

# The stand-ins of the tests compile small libraries and sign archives of packages.
stub-tools:
	@for tool in g++ gpg patchelf strip; do command -v $$tool >/dev/null || { $(INSTALL); \
	install g++ gnupg patchelf binutils; break; }; done

# Tests open TensorBoard's page and the catalogue in a real browser; npm fetches what judges the latter.
browser:
	@command -v chromedriver >/dev/null || { $(INSTALL); install chromium chromium-driver; }
	@command -v npm >/dev/null || { $(INSTALL); install npm; }

# Without root nothing is installed: an engine that answers and a registry are enough to build.
machine: $(READY)
	@! { $(MAY_INSTALL); } || $(MAKE) --no-print-directory base-tools
	build/setup/engine.sh
	$(BIN)/imgbuild doctor --write --stack debian

# They make the base image from Debian's archive where no registry gives it, and in the tests.
base-tools:
	@command -v mmdebstrap >/dev/null || { $(INSTALL); install mmdebstrap debian-archive-keyring; }

# Runs the files of `imgbuild run --format compose` in the tests.
compose:
	@docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || { \
	$(INSTALL); install docker-compose; }

# uv installs in seconds what takes pip a minute. It trusts this machine's certificates, as pip does
# where it is told to, but reads no settings of pip: behind an index of pip's own, pip installs.
UV = PATH="$$PATH:$(CURDIR)/$(BIN)" UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 uv pip install -q --python $(BIN)/python
ADD_PIP = $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
PYTHON_INSTALL = $(UV) $(1) || { echo "uv failed; pip tries again."; \
	$(ADD_PIP) && $(BIN)/python -m pip install -qq $(1); }
# pip runs from the wheel that Python carries: installing pip itself would take longer than uv.
PIP_WHEEL = import ensurepip, glob, os, sysconfig; \
	own = os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"); \
	folder = sysconfig.get_config_var("WHEEL_PKG_DIR") or own; \
	print(*glob.glob(os.path.join(folder, "pip-*.whl"))[:1])

# Another user's environment serves as long as it need not be changed.
OTHERS_VENV = { echo "$(VENV) belongs to $$(stat -c %U $(VENV)), and this user cannot use or renew it. Run make" \
	"as that user, or with an environment of your own: make VENV=DIR." >&2; exit 3; }

own-venv:
	@[ ! -e $(VENV) ] || [ -w $(VENV) ] || { [ $(READY) -nt $(REQUIREMENTS) ] && \
	[ $(READY) -nt pyproject.toml ] && $(BIN)/python -c ''; } 2>/dev/null || $(OTHERS_VENV)

# Debian's Python has no ensurepip, and so no pip, where python3-venv is missing.
$(READY): $(REQUIREMENTS) pyproject.toml | own-venv
	@$(BIN)/python -c '' 2>/dev/null || { $(INSTALL); \
	python=$$($(FIND_PYTHON)); \
	if [ -z "$$python" ] && $(MAY_INSTALL); then \
		install python3 python3-venv; python=$$($(FIND_PYTHON)); fi; \
	if [ -z "$$python" ]; then \
		echo "imgbuild needs Python 3.11 or later, and none of python3.13, python3.12, python3.11" \
		"and python3 is one. Debian 12 and Ubuntu 24.04 have it: apt-get install python3-venv." \
		"Elsewhere, as on Ubuntu 22.04, uv (https://docs.astral.sh/uv) brings one:" \
		"uv venv --seed --python 3.12 $(VENV), then make again. To install imgbuild alone, run" \
		"here: pipx install . (or uv tool install --python 3.12 .)." >&2; \
		exit 3; fi; \
	echo "Making $(VENV) with $$("$$python" --version)"; \
	"$$python" -c 'import ensurepip' 2>/dev/null || \
		install "$$("$$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; \
	"$$python" -m venv --clear --without-pip $(VENV); }
	@echo "Installing $(REQUIREMENTS) into $(VENV)"
	@command -v uv >/dev/null || { sed -n '/^uv==/,/[^\\]$$/p' $(REQUIREMENTS) >$(VENV)/uv.txt && \
	wheel=$$($(BIN)/python -c '$(PIP_WHEEL)') && \
	$(BIN)/python "$$wheel/pip" install -qq --require-hashes --no-deps -r $(VENV)/uv.txt; }
	@$(call PYTHON_INSTALL,--require-hashes -r $(REQUIREMENTS))
	@$(call PYTHON_INSTALL,--no-deps --no-build-isolation --editable .)
	@touch $@

$(DEV): $(READY) $(DEV_REQUIREMENTS)
	@[ -w $(VENV) ] || $(OTHERS_VENV)
	@echo "Installing $(DEV_REQUIREMENTS) into $(VENV)"
	@$(call PYTHON_INSTALL,--require-hashes -r $(DEV_REQUIREMENTS))
	@$(ADD_PIP)
	@touch $@

$(SITE_VENV)/.ready: $(SITE_REQUIREMENTS) $(READY)
	@echo "Installing $(SITE_REQUIREMENTS) into $(SITE_VENV)"
	@$(BIN)/python -m venv --clear $(SITE_VENV)
	@$(SITE_VENV)/bin/python -m pip install -qq --require-hashes -r $(SITE_REQUIREMENTS)
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find build tests -name __pycache__ -prune -exec rm -rf {} +
