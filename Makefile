# gridcomm: build, test, install. `make help` says what there is.
# SPDX-License-Identifier: MIT

# The rooms from the ground up; dist/gridcomm.c joins them in this order.
ROOMS = sys netlink text op topo route backbone mend linksfile model modelfile treemodel tree sched treecoll exchange circulant local places wide_reduce wide_alltoall wide predict trials choose nested plan decide site boot launch addrsel override pmi dial join reach life rescue mesh control inbox link forward strand overlay drive comm request match p2p peers post shrink message coll calls modeluse measure describe stall gridcomm

BUILD  ?= build
CFLAGS ?= -O2 -g
PREFIX ?= /usr/local
SAN    =
TESTS  =
FUZZ_SECONDS = 60
FIGURE ?= docs/models-predicted.svg

CLANG         ?= clang
LLVM_COV      ?= llvm-cov
LLVM_PROFDATA ?= llvm-profdata

# Each compiler and each sanitizer has a directory of its own, so that objects never mix.
comma := ,
space := $(subst ,, )
variant := $(strip $(filter-out cc,$(notdir $(CC))) $(subst $(comma), ,$(SAN)) $(if $(COVERAGE),coverage))
OUT  := $(BUILD)$(addprefix /,$(subst $(space),-,$(variant)))

warnings := -Wall -Wextra -Wpedantic -Wshadow -Wconversion
sanitize := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
override COMPILE := $(CC) -std=c11 $(CFLAGS) $(warnings) -pthread $(sanitize) $(if $(COVERAGE),--coverage -O0) $(CPPFLAGS) -I.
override LINK    := $(CC) $(CFLAGS) -pthread $(sanitize) $(if $(COVERAGE),--coverage) $(LDFLAGS)

rooms   := $(filter $(wildcard *.c),$(ROOMS:=.c)) $(filter-out $(ROOMS:=.c),$(wildcard *.c))
$(if $(filter-out $(ROOMS:=.c),$(rooms)),$(warning ROOMS lacks $(filter-out $(ROOMS:=.c),$(rooms))))
objects  = $(patsubst %.c,$(OUT)/obj/%.o,$(1))
LIB     := $(OUT)/libgridcomm.a
# MPI programs: the layer, and its compiler wrappers.
COMPAT  := $(OUT)/libgcmpi.a $(OUT)/gcmpicc $(OUT)/gcmpicxx

gcrun    := $(wildcard tools/gcrun*.c)
gcbench  := $(wildcard tools/gcbench*.c) tools/tool.c
gctopo   := tools/gctopo.c tools/tool.c
examples := $(patsubst %.c,$(OUT)/%,$(wildcard examples/*.c))
# Test programs are test_*.c; any other file beside them is support for all of them.
support   = $(filter-out tests/$(1)/test_%.c,$(wildcard tests/$(1)/*.c))
programs  = $(patsubst tests/$(1)/%.c,$(OUT)/tests/$(2)/%,$(wildcard tests/$(1)/test_*.c))
simulated := $(call support,sim) tests/unit/sched_check.c $(filter-out tests/gct_real.c,$(wildcard tests/gct*.c))
real      := $(filter-out tests/gct_sim.c,$(wildcard tests/gct*.c))
tests     := $(call programs,unit,unit) $(call programs,sim,sim) $(call programs,api,api-sim) \
             $(call programs,api,api-real) $(call programs,api,api-dist)
scripts   := $(sort $(wildcard tests/dist/test_*.sh tests/run/test_*.sh tests/net/test_*.sh))
chosen     = $(if $(TESTS),$(foreach t,$(1),$(if $(strip $(foreach p,$(TESTS),$(findstring $(p),$(t)))),$(t))),$(1))
tools     := $(OUT)/gcrun $(OUT)/gctopo $(OUT)/gcbench $(patsubst %.c,$(OUT)/%,$(wildcard tests/net/*.c tests/run/*.c))

.PHONY: all lib test foreign programs demo bench bench-coll bench-model bench-apps sweep planted figures dist install fuzz fuzzers run-fuzz fuzz-coverage tidy coverage clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: $(LIB) $(OUT)/gcrun $(OUT)/gctopo $(OUT)/gcbench $(examples) $(COMPAT)
lib: $(LIB)

$(OUT)/obj/%.o: %.c $(OUT)/flags
	@mkdir -p $(@D)
	$(COMPILE) -MMD -MP -c -o $@ $<

# Changes when the command line of the compiler does, and everything is built again.
$(OUT)/flags: FORCE
	@mkdir -p $(@D); echo '$(COMPILE)' | cmp -s - $@ || echo '$(COMPILE)' > $@

$(LIB): $(call objects,$(rooms))
	@rm -f $@
	$(AR) rcs $@ $^

$(OUT)/libgcmpi.a: $(OUT)/obj/compat/mpi.o
	@rm -f $@
	$(AR) rcs $@ $^
wrapper = sed 's,@INCLUDE@,$(1),; s,@LIB@,$(2),' compat/gcmpicc.sh > $(3) && chmod 755 $(3)
$(OUT)/gcmpicc $(OUT)/gcmpicxx: compat/gcmpicc.sh
	@mkdir -p $(@D)
	$(call wrapper,$(CURDIR)/compat,$(abspath $(OUT)),$@)

# The programs: each needs its own object, what is added below, and the library last.
link = @mkdir -p $(@D); echo 'link $@'; $(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(1)

$(OUT)/gcrun: $(call objects,$(gcrun)) $(LIB)
	$(call link)
$(OUT)/gctopo: $(call objects,$(gctopo)) $(LIB)
	$(call link)
$(OUT)/gcbench: $(call objects,$(gcbench)) $(LIB)
	$(call link,-lm)
$(OUT)/examples/%: $(OUT)/obj/examples/%.o $(LIB)
	$(call link,-lm)
$(OUT)/tests/net/%: $(OUT)/obj/tests/net/%.o $(OUT)/obj/tools/tool.o $(LIB)
	$(call link,-lm)
$(OUT)/tests/net/mpi_cost: $(OUT)/obj/compat/mpi.o
$(OUT)/tests/net/memory: $(call objects,$(simulated))
$(OUT)/tests/run/%: $(OUT)/obj/tests/run/%.o $(LIB)
	$(call link)
$(OUT)/tests/unit/%: $(OUT)/obj/tests/unit/%.o $(call objects,$(call support,unit)) $(LIB)
	$(call link,-lcmocka -lm)
$(OUT)/tests/unit/test_hostfile: $(call objects,$(filter-out tools/gcrun.c,$(gcrun)))
$(OUT)/tests/sim/%: $(OUT)/obj/tests/sim/%.o $(call objects,$(simulated)) $(LIB)
	$(call link,-lcmocka -lm $(wrapped))
$(OUT)/tests/sim/test_sweep: wrapped := -Wl,--wrap=calloc,--wrap=realloc
$(OUT)/tests/figures/overlay_figures: $(call objects,tests/figures/overlay_figures.c tests/unit/overlay_world.c) $(LIB)
	$(call link,-lm)
$(OUT)/tests/figures/collectives_figures: $(call objects,tests/figures/collectives_figures.c $(simulated)) $(LIB)
	$(call link,-lm)
# The tests of the public API, three times: simulated network, real sockets, and the one-file form on real sockets.
$(OUT)/tests/api-sim/%: $(OUT)/obj/tests/api/%.o $(call objects,$(call support,api) $(simulated)) $(LIB)
	$(call link,-lcmocka -lm)
$(OUT)/tests/api-real/%: $(OUT)/obj/tests/api/%.o $(call objects,$(call support,api) $(real)) $(LIB)
	$(call link,-lcmocka -lm)
$(OUT)/tests/api-dist/%: $(OUT)/obj/tests/api/%.o $(call objects,$(call support,api) $(real)) $(OUT)/obj/dist/gridcomm.o
	$(call link,-lcmocka -lm)

# Faults planted in the library: do random jobs find them? An hour or less; ONLY=regex: some of them.
planted: $(OUT)/tests/sim/test_chaos
	@COMPILE='$(COMPILE)' LINK='$(LINK)' OBJECTS='$(call objects,tests/sim/test_chaos.c $(simulated))' LIBS='$(LIB) -lcmocka -lm' \
	  bash tests/sim/planted.sh $(OUT)

figures: $(OUT)/tests/figures/overlay_figures $(OUT)/tests/figures/collectives_figures
	$< docs
	$(word 2,$^) docs

dist: dist/gridcomm.c
dist/gridcomm.c: tools/amalgamate.sh gridcomm.h gridcomm_int.h $(rooms)
	sh tools/amalgamate.sh dist $(rooms)

programs: all $(filter-out %/gcrun %/gctopo %/gcbench,$(tools)) dist $(call chosen,$(tests))

# What the tests need comes first, because cmocka must be there before anything is compiled against it.
test:
	@sh tests/need.sh test
	@$(MAKE) --no-print-directory programs
	@TOP='$(BUILD)' BUILD='$(OUT)' CC='$(CC)' SAN='$(SAN)' sh tests/run_all.sh $(call chosen,$(tests) $(scripts))

foreign: all
	@BUILD='$(OUT)' CC='$(CC)' SAN='$(SAN)' bash tests/mpi/foreign.sh $(PROGRAMS)

demo: all
	@sh tools/demo.sh $(OUT)

bench:
	@sh tests/need.sh test
	@$(MAKE) --no-print-directory programs
	@bash tests/net/bench.sh $(OUT)

bench-coll:
	@sh tests/need.sh test
	@$(MAKE) --no-print-directory programs
	@bash tests/net/bench_coll.sh $(OUT)

bench-model:
	@sh tests/need.sh test
	@$(MAKE) --no-print-directory all $(OUT)/tests/net/wan $(OUT)/tests/net/enter
	@FIGURE='$(FIGURE)' bash tests/net/bench_model.sh $(OUT)

bench-apps:
	@sh tests/need.sh test
	@$(MAKE) --no-print-directory all $(OUT)/tests/net/wan $(OUT)/tests/net/enter
	@bash tests/net/apps.sh $(OUT)

# Coverage-guided fuzzing of all that reads bytes from outside.
fuzzers := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzzed  := $(rooms) $(filter-out tools/gcrun.c,$(gcrun)) $(filter-out tests/fuzz/fuzz_%.c,$(wildcard tests/fuzz/*.c))
fuzz_cc := $(CLANG) -std=c11 -O1 -g -pthread -I. -fno-sanitize-recover=all
$(BUILD)/fuzz/% $(BUILD)/fuzz/obj/%.o: find := address,undefined
$(BUILD)/fuzz-coverage/% $(BUILD)/fuzz-coverage/obj/%.o: find := fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping
define fuzz_rules
$(BUILD)/$(1)/obj/%.o: %.c
	@mkdir -p $$(@D)
	$$(fuzz_cc) -MMD -MP -fsanitize=fuzzer-no-link -fsanitize=$$(find) -c -o $$@ $$<
$(BUILD)/$(1)/%: $(BUILD)/$(1)/obj/tests/fuzz/%.o $(fuzzed:%.c=$(BUILD)/$(1)/obj/%.o)
	$$(fuzz_cc) -fsanitize=fuzzer -fsanitize=$$(find) -o $$@ $$^
endef
$(eval $(call fuzz_rules,fuzz))
$(eval $(call fuzz_rules,fuzz-coverage))

fuzz:
	@sh tests/need.sh fuzz
	@$(MAKE) --no-print-directory run-fuzz
fuzzers run-fuzz: $(call chosen,$(fuzzers:%=$(BUILD)/fuzz/%))
run-fuzz:
	@sh tests/fuzz/run.sh $(BUILD) $(FUZZ_SECONDS) $(notdir $^)
fuzz-coverage: $(call chosen,$(fuzzers:%=$(BUILD)/fuzz-coverage/%))
	@LLVM_COV='$(LLVM_COV)' LLVM_PROFDATA='$(LLVM_PROFDATA)' sh tests/fuzz/coverage.sh $(BUILD) $(notdir $^)

checked := $(rooms) $(gcrun) $(sort $(gcbench) $(gctopo)) $(wildcard examples/*.c) $(filter-out compat/mpi.c,$(wildcard compat/*.c))
# A quarter of the analyzer's usual limit for a function takes a third of the time.
analyzer := -Xclang -analyzer-config -Xclang max-nodes=60000
tidy:
	@sh tests/need.sh tidy
	@printf '%s\n' $(checked) | xargs -P $$(nproc) -I{} clang-tidy --quiet {} -- -std=c11 -I. $(analyzer) 2>/dev/null
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --suppress=ctuuninitvar --error-exitcode=1 \
	  -D_GNU_SOURCE -DGCI= -DGCM= -I. $(checked)

# Every allocation and system call of small jobs fails in turn, in every way; and which places of the library that reaches. The
# latter needs a line for each call, so nothing is optimised.
sweep:
	@$(MAKE) --no-print-directory BUILD='$(BUILD)/sweep' CFLAGS='-O0 -g' $(BUILD)/sweep/tests/sim/test_sweep
	@rm -f $(BUILD)/sweep/sites
	@SWEEP=$${SWEEP:-all} SWEEP_SITES=$(BUILD)/sweep/sites $(BUILD)/sweep/tests/sim/test_sweep
	@sh tests/sim/sites.sh $(BUILD)/sweep/tests/sim/test_sweep $(BUILD)/sweep/sites

coverage:
	@$(MAKE) --no-print-directory COVERAGE=1 test
	@cd $(BUILD)/coverage && gcov -n $(rooms:%.c=obj/%.o) 2>/dev/null | \
	  awk -F"'" '/^File/ { f = $$2 } /^Lines/ && f ~ /^[a-z0-9]+\.c$$/ { print f, $$0; split($$0, n, /[:% ]+/); \
	    all += n[5]; reached += n[3] / 100 * n[5]; f = "" } END { printf "all: %.2f%% of %d lines\n", 100 * reached / all, all }'

version = $(shell awk '/define GRIDCOMM_VERSION_/ { v = v s $$3; s = "." } END { print v }' gridcomm.h)
install: $(LIB) $(OUT)/gcrun $(OUT)/gctopo $(OUT)/gcbench $(COMPAT)
	install -d $(DESTDIR)$(PREFIX)/include/gcmpi $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/bin
	install -m 644 gridcomm.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 compat/mpi.h $(DESTDIR)$(PREFIX)/include/gcmpi/
	install -m 644 $(LIB) $(OUT)/libgcmpi.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(OUT)/gcrun $(OUT)/gctopo $(OUT)/gcbench $(DESTDIR)$(PREFIX)/bin/
	$(call wrapper,$(PREFIX)/include/gcmpi,$(PREFIX)/lib,$(DESTDIR)$(PREFIX)/bin/gcmpicc)
	cp $(DESTDIR)$(PREFIX)/bin/gcmpicc $(DESTDIR)$(PREFIX)/bin/gcmpicxx
	printf '%s\n' 'Name: gridcomm' 'Description: messages and collectives between processes on untidy networks' \
	  'Version: $(version)' 'Cflags: -I$(PREFIX)/include' 'Libs: -L$(PREFIX)/lib -lgridcomm -pthread' \
	  > $(DESTDIR)$(PREFIX)/lib/pkgconfig/gridcomm.pc

clean:
	rm -rf $(BUILD) dist

help:
	@echo 'make             $(BUILD)/libgridcomm.a, $(BUILD)/gcrun, $(BUILD)/gctopo, $(BUILD)/gcbench, $(BUILD)/examples/, $(BUILD)/gcmpicc'
	@echo 'make demo        8 processes in 2 clusters on this machine: ring, broadcast of a file, allreduce'
	@echo 'make test        builds and runs all tests; TESTS="unit/test_op api" runs those whose name has a word of it'
	@echo 'make foreign     fetches, compiles and runs MPI programs of others; PROGRAMS="hypre suite": some of them'
	@echo 'make bench       the ratios against bare sockets, and bench-model, on the test bed (root)'
	@echo 'make bench-coll  collectives between sites, beside their lower bounds and two MPIs, on the test bed (root)'
	@echo 'make bench-model predictions and choices of a model fitted on point-to-point messages, on the test bed (root); FIGURE=$(FIGURE)'
	@echo 'make bench-apps  examples/asp and qr between sites, with and without the hierarchy, on the test bed (root)'
	@echo 'make planted     plants faults in the library, and sees that random jobs on a failing network find them'
	@echo 'make figures     docs/overlay-figures.md and its plots: what sparse links cost, by simulation;'
	@echo '                 docs/collectives-figures.md: every collective beside its lower bound'
	@echo 'make dist        dist/gridcomm.h and dist/gridcomm.c: the library as two files'
	@echo 'make install     PREFIX=$(PREFIX) DESTDIR='
	@echo 'make fuzz        FUZZ_SECONDS=$(FUZZ_SECONDS) for each target; make fuzz-coverage: share of the parsers reached'
	@echo 'make tidy        clang-tidy and cppcheck;  make coverage: lines reached by the tests'
	@echo 'make sweep       each allocation and system call fails in turn, everywhere and in every way; SWEEP=look only lists where'
	@echo 'make clean       removes $(BUILD) and dist'
	@echo 'Variables: CC=clang CFLAGS= LDFLAGS= BUILD=build SAN=address,undefined|thread'

-include $(shell find $(OUT)/obj $(BUILD)/fuzz/obj $(BUILD)/fuzz-coverage/obj -name '*.d' 2>/dev/null)
