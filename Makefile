# The commands a person types. Everything they do is in CMake presets and tools/*.sh.
BUILD := build/release

# CMake targets that `e2e` runs beside the program.
E2E_TARGETS := triton_nereid_test nereid_hanging_plugin

.PHONY: all setup quickstart docs docs-test deploy-test test unit e2e tokenizers chat-templates quantized saved-checkpoints stock bundle packages packages-test gpu-build gpu-bundle gpu-test format options lint asan tsan clean
all: $(BUILD)/build.ninja
	@tools/build.py $(BUILD) nereid

setup:
	@tools/setup.sh

$(BUILD)/build.ninja: | setup
	@mkdir -p $(BUILD)
	@cmake --preset release >$(BUILD)/configure.log || { cat $(BUILD)/configure.log; exit 1; }

# Installs, builds, serves models/quickstart, sends two requests, stops.
quickstart:
	@tools/quickstart.sh --plan $(BUILD)
	@$(MAKE) --no-print-directory all
	@tools/quickstart.sh $(BUILD)

# Every test: unit, layers, tokenizers, chat templates and quantised layouts against reference packages, end to end
# with real clients. `unit` builds everything: it comes last, so that a target the others do not name is missed.
test: tokenizers chat-templates quantized e2e unit

unit: $(BUILD)/build.ninja
	cmake --build $(BUILD)
	tools/unit.sh $(BUILD)

e2e: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target nereid $(E2E_TARGETS)
	tests/e2e/run.sh $(BUILD)
	tests/e2e/triton.sh $(BUILD)

tokenizers: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target tokenizer_lines
	tests/tokenizers/run.sh $(BUILD)

chat-templates: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target template_lines
	tests/chat_templates/run.sh $(BUILD)

# Quantised checkpoints of every layout against the numbers that they stand for.
quantized: all
	tests/quantized/run.sh $(BUILD)

# Tiny models of all families as transformers 5 and 4 save them; installs both, with PyTorch. No part of `test`.
saved-checkpoints: all
	tests/saved_checkpoints/run.sh $(BUILD)

# Against a stock Triton server, which it installs: proofs, recorded corpus, differential test.
stock: all
	tests/stock/run.sh $(BUILD)

# A relocatable folder, build/bundle/nereid, that runs on x86-64 Linux with glibc 2.36 or newer and nothing installed.
bundle: all
	tools/bundle.sh $(BUILD) build/bundle/nereid

# The download forms, in build/packages: tar, .deb, wheel, OCI image; with the GPU library where gpu-build has made it.
packages: all
	tools/packages.sh $(BUILD) build/packages

# Makes them twice and compares, installs each in a bare root and asks the model; as root, a few minutes.
packages-test: all
	tests/packages/run.sh $(BUILD)

gpu-build: setup
	cmake --preset cuda-release
	cmake --build build/cuda-release --target nereid_cuda $$(tools/gpu_test.sh --programs cuda)

# The bundle with libnereid_cuda.so and the GPU's test programs; needs the CUDA toolkit, not a GPU.
gpu-bundle: $(BUILD)/build.ninja gpu-build
	cmake --build $(BUILD) --target nereid $$(tools/gpu_test.sh --programs host)
	tools/bundle.sh $(BUILD) build/bundle/nereid build/cuda-release
	tools/gpu_test.sh --pack $(BUILD) build/cuda-release build/bundle/nereid

# On a machine with an NVIDIA GPU: tests the bundle (carried there, or built first).
gpu-test:
	test -x build/bundle/nereid/bin/gpu_kernels_test || $(MAKE) gpu-bundle
	tools/gpu_test.sh build/bundle/nereid

format:
	tools/check_format.sh --fix

# Writes docs/options.md, docs/flags.md and the parameters of the config.pbtxt template from the declarations of options.
options: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target backend_parameters_test cli_test nereid
	$(BUILD)/bin/nereid flags >$(BUILD)/flags.md && mv $(BUILD)/flags.md docs/flags.md
	NEREID_WRITE_DOCS=1 $(BUILD)/bin/backend_parameters_test --gtest_filter='Parameters.TemplateOf*'
	NEREID_WRITE_DOCS=1 $(BUILD)/bin/cli_test --gtest_filter='OptionsPage.*'

lint: $(BUILD)/build.ninja
	tools/check_format.sh
	tools/check_layers.sh $(BUILD)/layers.txt
	tools/check_includes.py
	tools/check_comments.py
	tools/check_links.py

# The documents as a site, build/site: HTML with a search that needs no network; mkdocs comes from PyPI.
docs:
	tools/docs.sh build/site

# The site in a real Chromium, opened from its folder: search without a network, no other hosts.
docs-test: docs
	python3 tests/docs/site.py build/site

# The files of deploy/, each by its own tool or against its schema.
deploy-test: all
	tests/deploy/run.sh $(BUILD)

asan: setup
	tools/sanitize.sh address

tsan: setup
	tools/sanitize.sh thread

clean:
	rm -rf build
