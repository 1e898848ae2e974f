# The public interface, from the debugging information that `readelf --debug-dump=info` prints of a program that includes
# the headers and has a pointer `abi_NAME` to each thing exported: a line for each field of a structure, each constant,
# each function and object.

/^ *<[0-9a-f]+><[0-9a-f]+>: Abbrev Number: [1-9]/ {
    split($1, at, /[<>]+/)
    die = at[3]
    tag[die] = $NF
    gsub(/[()]|DW_TAG_/, "", tag[die])
    depth = at[2]
    above[depth] = die
    if (depth > 0) {
        parent = above[depth - 1]
        child[parent, n[parent]++] = die
    }
    next
}
/ DW_AT_(name|type|byte_size|data_member_location|const_value|upper_bound|count) *:/ {
    value = $0
    sub(/^[^:]*: /, "", value)
    sub(/^\((indirect|indexed)[^)]*\): /, "", value)
    gsub(/^\(data[0-9]\) |^<0x|>|[ \t]+$/, "", value)
    attribute = $2
    gsub(/^DW_AT_|:/, "", attribute)
    has[die, attribute] = value
}

# Compilers have two names for some types.
function base(name)
{
    sub(/^long unsigned int$/, "unsigned long", name)
    sub(/^short unsigned int$/, "unsigned short", name)
    sub(/^long int$/, "long", name)
    return name
}

function type(die,    of, i, text)
{
    if (die == "")
        return "void"
    of = type_below(die)
    if (tag[die] == "pointer_type")
        return of (of ~ /[*]$/ ? "*" : " *")
    if (tag[die] == "const_type")
        return of ~ /[*]$/ ? of "const" : "const " of
    if (tag[die] == "structure_type")
        return "struct " has[die, "name"]
    if (tag[die] == "enumeration_type")
        return "enum " has[die, "name"]
    if (tag[die] == "array_type") {
        for (i = 0; i < n[die]; i++)
            text = text "[" length_of(child[die, i]) "]"
        return of text
    }
    if (tag[die] == "subroutine_type") {
        for (i = 0; i < n[die]; i++)
            text = text (i ? ", " : "") (has[child[die, i], "type"] == "" ? "..." : type(has[child[die, i], "type"]))
        return of " (" (text == "" ? "void" : text) ")"
    }
    return base(has[die, "name"])
}

function length_of(range)
{
    return has[range, "count"] != "" ? has[range, "count"] : has[range, "upper_bound"] + 1
}

function type_below(die)
{
    return tag[die] ~ /^(pointer|const|array|subroutine)_type$/ ? type(has[die, "type"]) : ""
}

END {
    for (die in tag) {
        name = has[die, "name"]
        if (tag[die] == "structure_type" && name ~ /^sp_/ && n[die]) {
            print "struct " name " size " has[die, "byte_size"]
            for (i = 0; i < n[die]; i++) {
                field = child[die, i]
                printf "struct %s +%04d %s: %s\n", name, has[field, "data_member_location"], has[field, "name"],
                    type(has[field, "type"])
            }
        } else if (tag[die] == "enumerator" && name ~ /^(abi_)?SP_/) {
            sub(/^abi_/, "", name)
            print "constant " name ": " has[die, "const_value"]
        } else if (tag[die] == "variable" && sub(/^abi_/, "", name))
            print "export " name ": " type(has[has[die, "type"], "type"])
    }
}
