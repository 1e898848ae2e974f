/*
 * Fuzz target: tokenizer.json. A file that is accepted encodes any bytes, cut or whole, and decodes the ids that it gave.
 */
#include "fuzz.h"
#include "model/tokenizer/tokenizer.h"

static const char text[] = "ab  a\n\xc3\xa9 <s> a'b 12 \xff\xf0\x9f\x98\x80 x\xcc\x81 aaaaaaaaaa "
                           "\xe5\xad\x97\xed\xa0\x80 b";
enum { LENGTH = sizeof text - 1 };

static void decode(const struct sp_tokenizer *t, const struct sp_ids *ids)
{
    struct sp_decoding d = {.flags = SP_DECODE_CHARACTERS};
    struct sp_decode_room room = {0};
    size_t len;

    for (size_t i = 0; i < ids->n; i++)
        if (ids->id[i] >= sp_tokenizer_vocab(t) || sp_decode(t, &d, ids->id[i], &room, &len))
            abort();
    sp_decode_room_free(&room);
}

static void use(const struct sp_tokenizer *t)
{
    struct sp_encoder *e = sp_encoder_create(t);
    struct sp_ids whole = {0}, parts = {0};
    int err;

    if (!e)
        abort();
    /* Errors there may be: a pattern that gives up, a character without a token. */
    err = sp_encode(e, text, LENGTH, 0, &whole);
    for (size_t at = 0, end; at < LENGTH; at = end) {
        end = at + sp_tokenizer_cut(t, text + at, LENGTH - at, 1);
        err |= sp_encode(e, text + at, end - at, at ? SP_ENCODE_CONTINUED : 0, &parts);
    }
    if (!err &&
        (whole.n != parts.n || (whole.n && memcmp(whole.id, parts.id, whole.n * sizeof *whole.id))))
        abort();
    if (!err)
        decode(t, &whole);
    sp_encode(e, text, LENGTH, SP_ENCODE_SPECIAL | SP_ENCODE_AROUND, &parts);
    sp_ids_free(&whole);
    sp_ids_free(&parts);
    sp_encoder_destroy(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_tokenizer *t;

    fuzz_silence();
    if (sp_tokenizer_parse((const char *)data, size, "fuzz", &t))
        return 0;
    fuzz_accepted++;
    use(t);
    sp_tokenizer_close(t);
    return 0;
}

#ifndef SP_LIBFUZZER

#define ADDED                                                                                      \
    "'added_tokens':[{'id':9,'content':'<s>','lstrip':true,'rstrip':true,"                         \
    "'single_word':true,'normalized':true,'special':true}],"

static const char byte_level[] =
    "{" ADDED "'normalizer':{'type':'NFC'},'pre_tokenizer':{'type':'Sequence',"
    "'pretokenizers':[{'type':'Split','pattern':{'Regex':' ?\\\\p{L}+|\\\\s+(?!\\\\S)|[^a]'},"
    "'behavior':'Isolated','invert':false},{'type':'ByteLevel','add_prefix_space':true,"
    "'use_regex':true},{'type':'Digits','individual_digits':true}]},"
    "'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>',"
    "'type_id':0}},{'Sequence':{'id':'A','type_id':0}}],'special_tokens':{'<s>':{'id':'<s>',"
    "'ids':[9],'tokens':['<s>']}}},'decoder':{'type':'ByteLevel'},'model':{'type':'BPE',"
    "'unk_token':'a','fuse_unk':true,'ignore_merges':true,'vocab':{'a':0,'b':1,'\\u0120':2,'ab':3,"
    "'aa':4,'aaaa':5,'\\u0120a':6},'merges':['a b',['a','a'],'aa aa','\\u0120 a']}}";
static const char sentencepiece[] =
    "{" ADDED "'normalizer':{'type':'Sequence','normalizers':[{'type':'Prepend','prepend':'_'},"
    "{'type':'Replace','pattern':{'String':' '},'content':'_'}]},'pre_tokenizer':null,"
    "'decoder':{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'_'},"
    "'content':' '},{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' ',"
    "'start':1,'stop':0}]},'model':{'type':'BPE','unk_token':'<unk>','byte_fallback':true,"
    "'vocab':{'<unk>':0,'a':1,'b':2,'_':3,'_a':4,'ab':5,'<0xFF>':6},'merges':['_ a','a b']}}";
static const char unigram[] =
    "{" ADDED "'normalizer':{'type':'Sequence','normalizers':[{'type':'Precompiled',"
    "'precompiled_charsmap':'CAAAAGEBAABhAQAAYgDDqQA='},{'type':'NFKD'},{'type':'StripAccents'},"
    "{'type':'Lowercase'},{'type':'Strip'}]},'pre_tokenizer':{'type':'Sequence',"
    "'pretokenizers':[{'type':'WhitespaceSplit'},{'type':'Punctuation','behavior':'Contiguous'},"
    "{'type':'Metaspace','replacement':'_','prepend_scheme':'first','split':true}]},"
    "'decoder':{'type':'Metaspace','replacement':'_'},'model':{'type':'Unigram','unk_id':0,"
    "'byte_fallback':true,'vocab':[['<unk>',0],['a',-1],['b',-1.5],['ab',-2],['_',-3],['_a',-1e3],"
    "['<0xFF>',0]]}}";

int main(int argc, char **argv)
{
    const struct fuzz_seed seeds[] = {fuzz_json(byte_level), fuzz_json(sentencepiece),
                                      fuzz_json(unigram)};

    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof seeds[0], 30000);
}

#endif
