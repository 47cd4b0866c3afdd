# make demo   what eqsat does, on generated data (DATA=DIR for MNIST); a minute or two
# make test   all tests
# make test-all  the same, and what takes minutes and seldom finds anything
# make oracle  all of JAX's public functions and their derivatives through eqsat; an hour or two
# make oracle-hostile  the same on hostile data: FORM=value, gradient or tangent
# make fuzz   random programs on hostile data through eqsat: SEED=0 COUNT=500, ACCURACY=exact, reassociates or chunks
# make lint   ruff and mypy
# make docs   the manual, as pages in build/docs that need no network
# make bench  eqsat beside plain JAX, loops by hand, KeOps, scikit-learn and faiss; an hour or more
# make bench-quick  a few small cases of it, in three minutes
# Each sets up .venv first when it is missing or out of date.

PYTHON ?= python3
PYTEST_ARGS ?= -n 2
VENV := .venv
INSTALLED := $(VENV)/.installed
# Without a GPU or a TPU, JAX is not to look for one: the plugins are there to compile for absent devices.
export JAX_PLATFORMS ?= $(if $(wildcard /dev/nvidiactl /dev/accel0 /dev/vfio/0),,cpu)
PEERS := $(VENV)/.peers

# mypy and the manual's reference know no package-dir: for them, a tree of links shows the packages where their
# imports say.

.PHONY: demo test test-all oracle oracle-hostile fuzz tree lint docs bench bench-quick clean

demo: $(INSTALLED)
	$(VENV)/bin/python -m examples.demo $(if $(DATA),--data $(DATA))

test: $(INSTALLED)
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

test-all: $(INSTALLED)
	EQSAT_NIGHTLY=1 $(VENV)/bin/python -m pytest $(PYTEST_ARGS) -m "not oracle"

oracle: $(INSTALLED)
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS) tests/oracle -m ""

oracle-hostile: $(INSTALLED)
	$(VENV)/bin/python -m tests.oracle.hostile --form $(or $(FORM),value) --seed $(or $(SEED),0)

fuzz: $(INSTALLED)
	$(VENV)/bin/python -m tests.fuzzing --accuracy $(or $(ACCURACY),exact) --seed $(or $(SEED),0) --count $(or $(COUNT),500)

tree:
	rm -rf build/types && mkdir -p build/types/eqsat
	ln -s $(CURDIR)/eqsat/* $(CURDIR)/frontend $(CURDIR)/backend $(CURDIR)/rules build/types/eqsat/

lint: $(INSTALLED) tree
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	cd build/types && $(CURDIR)/$(VENV)/bin/mypy --config-file ../../pyproject.toml -p eqsat

docs: $(INSTALLED) tree
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --quiet --strict

bench: $(PEERS)
	$(VENV)/bin/python -m benchmarks.speed $(BENCH_ARGS)

bench-quick: $(PEERS)
	$(VENV)/bin/python -m benchmarks.speed --quick

$(INSTALLED): pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

$(PEERS): $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
