# The page of the playground, with the schedules compiled to WebAssembly in it. For GNU make, called by
# `make playground` of a build tree:
#   top       the sources                  sources   of what may be in the page, relative to it: the pure
#   build     that tree: what it has                 library
#             generated is read            own       of the page itself
#   jansson   where jansson for WebAssembly is installed
#   EMCC      the compiler                 replaced  sources that own takes the place of
#   EMAR      its ar
# Made in the current directory: playground.html.

here := $(top)/src/playground

# Where Debian has modules that the compiler's own scripts want: a node of elsewhere does not look there.
export NODE_PATH := $(NODE_PATH):/usr/share/nodejs

# All of the library is compiled, and the linker takes what the page calls: there is no list to keep. Files that
# the page's own ones replace are never called. One that wants libraries or calls of a system that are not there is
# an empty object: should the page call it, the linker says so.
objects := $(patsubst %.c,%.o,$(filter-out $(replaced),$(filter %.c,$(sources))))
own_objects := $(own:%.c=%.o)

# A pointer to a size of ours may go to the system, which writes its lower half: all are little-endian, and begin as 0.
CFLAGS = -std=gnu11 -O3 -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wshadow \
	-include $(here)/wide_sizes.h -Wno-incompatible-pointer-types
# Memory that is not there is an error of the command, as in a terminal. Asyncify is what fibers need (contexts.c).
link_flags = -sMODULARIZE=1 -sEXPORT_NAME=Engine -sSINGLE_FILE=1 -sENVIRONMENT=worker \
	-sASYNCIFY=1 -sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=2GB -sABORTING_MALLOC=0 -sDYNAMIC_EXECUTION=0 \
	-sEXPORTED_FUNCTIONS=_sp_playground,_sp_playground_status -sEXPORTED_RUNTIME_METHODS=ccall,FS

drawing := $(top)/src/trace/page
chart := $(top)/src/cli/plan/chart.css
scripts := state.js engine.js editor.js results.js rows.js planner.js main.js

playground.html: $(here)/playground.html $(here)/playground.css $(addprefix $(here)/,$(scripts)) wasm.js \
		$(here)/worker.js $(chart) $(drawing)/drawing.css $(drawing)/picture.js $(drawing)/navigation.js
	cat $(drawing)/drawing.css $(chart) $(here)/playground.css > style
	cat wasm.js $(here)/worker.js > worker
	cat $(drawing)/picture.js $(drawing)/navigation.js $(addprefix $(here)/,$(scripts)) > scripts
	sed -e '/^@STYLE@$$/{r style' -e 'd' -e '}' \
	    -e '/^@WORKER@$$/{r worker' -e 'd' -e '}' \
	    -e '/^@SCRIPTS@$$/{r scripts' -e 'd' -e '}' $< > $@.tmp
	mv $@.tmp $@

wasm.js: $(own_objects) pure.a $(here)/wasm.mk
	$(EMCC) -O2 -o $@ $(link_flags) $(own_objects) pure.a -L$(jansson)/lib -ljansson

pure.a: $(objects)
	rm -f $@
	$(EMAR) cr $@ $(objects)

compile = $(EMCC) $(CFLAGS) -MMD -I$(top)/src -I$(top)/include -I$(build) -isystem $(jansson)/include -c -o $@

$(objects): %.o: $(top)/%.c $(here)/wasm.mk | empty.c
	@mkdir -p $(@D)
	$(compile) $< || { echo '$<: not for WebAssembly'; $(compile) empty.c; }

empty.c:
	echo 'extern int nothing;' > $@

$(own_objects): %.o: $(top)/%.c $(here)/wasm.mk
	@mkdir -p $(@D)
	$(compile) $<

-include $(objects:.o=.d) $(own_objects:.o=.d)
