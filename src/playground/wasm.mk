# The page of the playground, with the schedules compiled to WebAssembly in it. For GNU make, called by
# `make playground` of a build tree:
#   top       the sources                  sources   of the pure library, relative to it
#   build     that tree: what it has generated is read
#   jansson   where jansson for WebAssembly is installed
#   EMCC      the compiler
# Made in the current directory: playground.html.

here := $(top)/src/playground

# Where Debian has modules that the compiler's own scripts want: a node of elsewhere does not look there.
export NODE_PATH := $(NODE_PATH):/usr/share/nodejs

# Neither training, nor files of weights, nor plugins are in the page.
parts := src/cli/help src/cli/show src/model src/offload src/plan src/policies src/sp_error.c src/trace \
	src/cli/hardware.c src/cli/list.c src/cli/options.c src/cli/step_options.c src/train/options.c \
	src/train/slices_auto.c src/train/start/outputs.c
unwanted := src/model/files/% src/policies/load/guard.c src/policies/load/plugin.c
wanted := $(filter-out $(unwanted),$(filter %.c,$(filter $(addsuffix %,$(parts)),$(sources)))) \
	src/kernels/flops.c src/model/files/input.c src/playground/no_plugins.c src/playground/playground.c
objects := $(wanted:%.c=%.o)

CFLAGS = -std=gnu11 -O2 -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wshadow
# Memory that is not there is an error of the command, as in a terminal.
link_flags = -sMODULARIZE=1 -sEXPORT_NAME=Engine -sSINGLE_FILE=1 -sENVIRONMENT=worker \
	-sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=2GB -sABORTING_MALLOC=0 -sDYNAMIC_EXECUTION=0 \
	-sEXPORTED_FUNCTIONS=_sp_playground -sEXPORTED_RUNTIME_METHODS=ccall,FS

drawing := $(top)/src/trace/page
scripts := state.js engine.js editor.js results.js rows.js main.js

playground.html: $(here)/playground.html $(here)/playground.css $(addprefix $(here)/,$(scripts)) wasm.js \
		$(here)/worker.js $(drawing)/drawing.css $(drawing)/picture.js $(drawing)/navigation.js
	cat $(drawing)/drawing.css $(here)/playground.css > style
	cat wasm.js $(here)/worker.js > worker
	cat $(drawing)/picture.js $(drawing)/navigation.js $(addprefix $(here)/,$(scripts)) > scripts
	sed -e '/^@STYLE@$$/{r style' -e 'd' -e '}' \
	    -e '/^@WORKER@$$/{r worker' -e 'd' -e '}' \
	    -e '/^@SCRIPTS@$$/{r scripts' -e 'd' -e '}' $< > $@.tmp
	mv $@.tmp $@

wasm.js: $(objects) $(here)/wasm.mk
	$(EMCC) -O2 -o $@ $(link_flags) $(objects) -L$(jansson)/lib -ljansson

$(objects): %.o: $(top)/%.c
	@mkdir -p $(@D)
	$(EMCC) $(CFLAGS) -MMD -I$(top)/src -I$(top)/include -I$(build) -isystem $(jansson)/include -c -o $@ $<

-include $(objects:.o=.d)
