/* SPDX-License-Identifier: ISC */
/*
 * The rules of st.h, one line each: expectations come from the format's text.
 * test/unit/st_file.c has files, hints and the comparison with Python.
 */
#include "core/format/st.h"

#include <stdlib.h>
#include <string.h>

#include "core/le.h"
#include "core/mem.h"
#include "core/str.h"
#include "test/unit/tap.h"

/* A header, with ' for ", the bytes of data behind it, and what the message
 * must say; NULL: the file is valid. */
struct rule {
    const char *json;
    size_t data;
    const char *bad;
};

/* One tensor: dtype, dims, offsets. */
#define E(dtype, dims, offsets) \
    "{'dtype':'" dtype "','shape':[" dims "],'data_offsets':[" offsets "]}"
#define T(dtype, dims, offsets) "{'t':" E(dtype, dims, offsets) "}"
#define U8                      E("U8", "1", "0,1")
#define X4(s)                   s s s s
#define X16(s)                  X4(X4(s))
#define MAX                     "18446744073709551615" /* 2^64 - 1 */

static const struct rule json_rules[] = {
    { "{}", 0, NULL },
    { "  {}", 0, NULL },
    { "\t\r\n {}", 0, NULL },
    { "{}  \t\r\n", 0, NULL },
    { "{'t':" U8 "}                ", 1, NULL },
    { " { 't' :\n{ 'dtype' : 'U8' ,\t'shape' : [ 1 ] , 'data_offsets' : [ 0 "
      ", 1 ] } } ",
      1, NULL },
    { "{'a':" E("U8", "0", "0,0") ",'b':" U8 "}", 1, NULL },
    { "", 0, "the header ends at byte 8 (expected '{'" },
    { "    ", 0, "the header ends at byte 12 (expected '{'" },
    { "[]", 0, "byte 8 is '[' (expected '{'" },
    { "null", 0, "byte 8 is 'n'" },
    { "1", 0, "byte 8 is '1'" },
    { "''", 0, "expected '{'" },
    { "{} {}", 0, "byte 11 is '{' (expected nothing but spaces" },
    { "{}x", 0, "byte 10 is 'x'" },
    { "{},", 0, "byte 10 is ','" },
    { "{}\v", 0, "byte 10 is 0x0b" },
    { "\f{}", 0, "byte 8 is 0x0c" },
    { "\357\273\277{}", 0, "byte 8 is 0xef" }, /* a byte order mark */
    { "\302\240{}", 0, "byte 8 is 0xc2" },     /* a no-break space */
    { "{", 0, "the header ends at byte 9" },
    { "}", 0, "expected '{'" },
    { "{'t'", 0, "ends at byte 12 (expected ':')" },
    { "{'t':", 0, "ends at byte 13" },
    { "{'t'}", 0, "is '}' (expected ':')" },
    { "{t:" U8 "}", 1, "byte 9 is 't' (expected a name in quotes" },
    { "{1:" U8 "}", 1, "byte 9 is '1'" },
    { "{,}", 0, "byte 9 is ','" },
    { "{'t':" U8 ",}", 1, "is '}' (expected a name in quotes" },
    { "{,'t':" U8 "}", 1, "byte 9 is ','" },
    { "{'t':" U8 ",,'u':" E("U8", "0", "1,1") "}", 1, "is ','" },
    { "{'t':" U8 " 'u':" E("U8", "0", "1,1") "}", 1, "(expected ',' or '}')" },
    { "{'t':" U8, 1, "(expected ',' or '}')" },
    { "{'t':" U8 "]", 1, "is ']'" },
    { "{'t'='x'}", 0, "is '='" },
    { "{'t':/**/" U8 "}", 1, "is '/'" },
    { "{'t':" U8 "}//x", 1, "is '/'" },
    { "{'t':{'dtype':'U8','shape':[1],'data_offsets':[0,1],}}", 1, "is '}'" },
    { "{'t':{'dtype':'U8','shape':[1,],'data_offsets':[0,1]}}", 1, "is ']'" },
    { "{'t':{'dtype':'U8','shape':[,1],'data_offsets':[0,1]}}", 1, "is ','" },
    { "{'t':{'dtype':'U8','shape':[1 1],'data_offsets':[0,1]}}", 1, "is '1'" },
    { "{'t':{'dtype':'U8','shape':[1],'data_offsets':[0,1,]}}", 1, "is ']'" },
};

static const struct rule string_rules[] = {
    { "{'':" U8 "}", 1, NULL },
    { "{'\303\251\360\237\230\200':" U8 "}", 1, NULL },
    { "{'\177':" U8 "}", 1, NULL }, /* DEL is no control in JSON */
    { "{'\\u0000':" U8 "}", 1, NULL },
    { "{'\\'\\\\\\/\\b\\f\\n\\r\\t\\u00e9':" U8 "}", 1, NULL },
    { "{'\\uD83D\\uDe00':" U8 "}", 1, NULL },
    { "{'\\uffff\\ufdd0':" U8 "}", 1, NULL }, /* noncharacters are fine */
    { "{'\\ud7ff\\ue000':" U8 "}", 1, NULL },
    { "{'\357\277\277\364\217\277\277':" U8 "}", 1, NULL },
    { "{'" X16("0123456789abcdef") "':" U8 "}", 1, NULL },
    { "{'t", 0, "expected a string's end" },
    { "{'t\n':" U8 "}", 1, "byte 11 is 0x0a" },
    { "{'t\t':" U8 "}", 1, "byte 11 is 0x09" },
    { "{'t\037':" U8 "}", 1, "byte 11 is 0x1f" },
    { "{'\001':" U8 "}", 1, "is 0x01" },
    { "{'\\x41':" U8 "}", 1, "after a backslash" },
    { "{'\\a':" U8 "}", 1, "after a backslash" },
    { "{'\\U0041':" U8 "}", 1, "after a backslash" },
    { "{'\\u':" U8 "}", 1, "four hex digits" },
    { "{'\\u12':" U8 "}", 1, "four hex digits" },
    { "{'\\u123g':" U8 "}", 1, "is 'g' (expected four hex digits" },
    { "{'\\u+123':" U8 "}", 1, "four hex digits" },
    { "{'\\ud800':" U8 "}", 1, "surrogate" },
    { "{'\\udc00':" U8 "}", 1, "surrogate" },
    { "{'\\udfff':" U8 "}", 1, "surrogate" },
    { "{'\\ud800x':" U8 "}", 1, "surrogate" },
    { "{'\\ud800\\n':" U8 "}", 1, "surrogate" },
    { "{'\\ud800\\u0041':" U8 "}", 1, "surrogate" },
    { "{'\\ud800\\ud800':" U8 "}", 1, "surrogate" },
    { "{'\\udc00\\ud800':" U8 "}", 1, "surrogate" },
    { "{'\\ud800\\udc0':" U8 "}", 1, "four hex digits" },
    { "{'\\ud800\\ue000':" U8 "}", 1, "surrogate" },
    { "{'\\", 0, "after a backslash" },
    { "{'\200':" U8 "}", 1, "is 0x80 (expected valid UTF-8)" },
    { "{'\377':" U8 "}", 1, "valid UTF-8" },
    { "{'\303':" U8 "}", 1, "valid UTF-8" }, /* cut off */
    { "{'\303", 0, "valid UTF-8" },
    { "{'\300\257':" U8 "}", 1, "valid UTF-8" }, /* overlong */
    { "{'\340\200\257':" U8 "}", 1, "valid UTF-8" },
    { "{'\360\200\200\257':" U8 "}", 1, "valid UTF-8" },
    { "{'\355\240\200':" U8 "}", 1, "valid UTF-8" },     /* a surrogate */
    { "{'\364\220\200\200':" U8 "}", 1, "valid UTF-8" }, /* over U+10FFFF */
    { "{'\370\210\200\200\200':" U8 "}", 1, "valid UTF-8" },
    { "{'t':{'dtype':'\377'}}", 0, "valid UTF-8" },
};

static const struct rule entry_rules[] = {
    { "{'t':{'data_offsets':[0,1],'shape':[1],'dtype':'U8'}}", 1, NULL },
    { "{'t':{'x':0,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1, NULL },
    { "{'t':{'dtype':'U8','shape':[1],'data_offsets':[0,1],'x':{'a':[1,-0,1.5"
      "e+3,true,false,null,'\\u00e9',{},[]]}}}",
      1, NULL },
    { "{'t':{'x':1,'x':2,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      NULL },
    { "{'t':{'x':1e999,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      NULL },
    { "{'t':{'\\u0064type':'U8','shape':[1],'data_offsets':[0,1]}}", 1, NULL },
    { "{'t':{'dtype':'\\u00558','shape':[1],'data_offsets':[0,1]}}", 1, NULL },
    { "{'dtype':" U8 "}", 1, NULL },
    { "{'t':{}}", 0, "tensor \"t\": dtype is missing" },
    { "{'t':null}", 0, "tensor \"t\": byte 13 is 'n' (expected an object)" },
    { "{'t':[]}", 0, "(expected an object)" },
    { "{'t':['U8',[1],[0,1]]}", 1, "(expected an object)" },
    { "{'t':'x'}", 0, "(expected an object)" },
    { "{'t':0}", 0, "(expected an object)" },
    { "{'t':{'shape':[1],'data_offsets':[0,1]}}", 1, "dtype is missing" },
    { "{'t':{'dtype':'U8','data_offsets':[0,1]}}", 1, "shape is missing" },
    { "{'t':{'dtype':'U8','shape':[1]}}", 1, "data_offsets is missing" },
    { "{'t':{'Dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "dtype is missing" },
    { "{'t':{'dtype\\u0000':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "dtype is missing" },
    { "{'t':{'dtype':'U8','dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "dtype appears twice" },
    { "{'t':{'dtype':'U8','shape':[1],'shape':[1],'data_offsets':[0,1]}}", 1,
      "shape appears twice" },
    { "{'t':{'dtype':'U8','shape':[1],'data_offsets':[0,1],'data_offsets':[0,"
      "1]}}",
      1, "data_offsets appears twice" },
    { "{'t':{'dtype':null,'shape':[1],'data_offsets':[0,1]}}", 1,
      "dtype is null (expected a string)" },
    { "{'t':{'dtype':8,'shape':[1],'data_offsets':[0,1]}}", 1, "dtype is 8" },
    { "{'t':{'dtype':{'U8':null},'shape':[1],'data_offsets':[0,1]}}", 1,
      "expected a string" },
    { T("u8", "1", "0,1"), 1, "dtype is \"u8\"" },
    { T("F33", "1", "0,1"), 1, "dtype is \"F33\"" },
    { T("", "1", "0,1"), 1, "dtype is \"\"" },
    { T("U8 ", "1", "0,1"), 1, "dtype is \"U8 \"" },
    { T("U8\\u0000", "1", "0,1"), 1, "dtype is \"U8" },
    { T("float32", "1", "0,4"), 4, "dtype is \"float32\"" },
    { "{'t':{'dtype':'U8','shape':null,'data_offsets':[0,1]}}", 1,
      "shape is null (expected an array)" },
    { "{'t':{'dtype':'U8','shape':1,'data_offsets':[0,1]}}", 1, "shape is 1" },
    { "{'t':{'dtype':'U8','shape':'1','data_offsets':[0,1]}}", 1,
      "expected an array" },
    { "{'t':{'dtype':'U8','shape':{},'data_offsets':[0,1]}}", 1,
      "expected an array" },
    { "{'t':{'dtype':'U8','shape':[[1]],'data_offsets':[0,1]}}", 1,
      "a dim of shape is [1" },
    { T("U8", "1", ""), 1, "expected two data_offsets" },
    { T("U8", "1", "0"), 1, "expected two data_offsets" },
    { T("U8", "1", "0,1,1"), 1, "two data_offsets, not more" },
    { "{'t':{'dtype':'U8','shape':[1],'data_offsets':null}}", 1,
      "data_offsets is null" },
    { "{'t':{'dtype':'U8','shape':[1],'data_offsets':{'0':0,'1':1}}}", 1,
      "expected [BEGIN,END]" },
    { "{'t':{'x':01,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "is '1'" },
    { "{'t':{'x':+1,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "is '+'" },
    { "{'t':{'x':.5,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "is '.'" },
    { "{'t':{'x':1.,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "a digit" },
    { "{'t':{'x':1e,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "a digit" },
    { "{'t':{'x':-,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "a digit" },
    { "{'t':{'x':0x1,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "is 'x'" },
    { "{'t':{'x':NaN,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "is 'N' (expected a JSON value)" },
    { "{'t':{'x':-Infinity,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "is 'I'" },
    { "{'t':{'x':True,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "is 'T'" },
    { "{'t':{'x':nul,'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "a JSON value" },
    { "{'t':{'x':[1,],'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "is ']'" },
    { "{'t':{'x':'\\ud800','dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "surrogate" },
    { "{'t':{'x':[},'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
      "is '}'" },
    { "{'t':" U8 ",'t':" U8 "}", 1, "tensor \"t\" appears twice" },
    { "{'t':" U8 ",'t':" E("U8", "1", "1,2") "}", 2, "appears twice" },
    { "{'t':" U8 ",'\\u0074':" E("U8", "1", "1,2") "}", 2, "appears twice" },
    { "{'b':" U8 ",'a':" E("U8", "1", "1,2") ",'b':" E("U8", "1", "2,3") "}", 3,
      "\"b\" appears twice" },
    { "{'':" U8 ",'':" E("U8", "0", "1,1") "}", 1, "appears twice" },
    { "{'t':" U8 ",'t\\u0000':" E("U8", "0", "1,1") "}", 1, NULL },
};

static const struct rule meta_rules[] = {
    { "{'__metadata__':{}}", 0, NULL },
    { "{'__metadata__':null}", 0, NULL },
    { "{'__metadata__':{'format':'pt','':'','a\\u0000':'\\u0000'}}", 0, NULL },
    { "{'t':" U8 ",'__metadata__':{'format':'pt'}}", 1, NULL },
    { "{'__\\u006detadata__':{'a':'b'}}", 0, NULL },
    { "{'__metadata__':{'a':1}}", 0, "expected a string as value" },
    { "{'__metadata__':{'a':null}}", 0, "expected a string as value" },
    { "{'__metadata__':{'a':true}}", 0, "expected a string as value" },
    { "{'__metadata__':{'a':['b']}}", 0, "expected a string as value" },
    { "{'__metadata__':{'a':{}}}", 0, "expected a string as value" },
    { "{'__metadata__':{'a':'b',}}", 0, "is '}'" },
    { "{'__metadata__':[]}", 0, "an object of strings" },
    { "{'__metadata__':''}", 0, "an object of strings" },
    { "{'__metadata__':0}", 0, "an object of strings" },
    { "{'__metadata__':" U8 "}", 1, "expected a string as value" },
    { "{'__metadata__':nullx}", 0, "is 'x'" },
    { "{'__metadata__':{'a':'b','a':'b'}}", 0, "__metadata__ has \"a\" twice" },
    { "{'__metadata__':{},'__metadata__':{}}", 0, "__metadata__ only once" },
    { "{'__metadata__':null,'__metadata__':{'a':'b'}}", 0, "only once" },
    { "{'__metadata__':{'a':'\\ud800'}}", 0, "surrogate" },
    { "{'__metadata__':{'a':'\377'}}", 0, "valid UTF-8" },
    { "{'__metadata__ ':{'a':'b'}}", 0, "dtype is missing" },
};

static const struct rule number_rules[] = {
    { T("U8", "", "0,1"), 1, NULL }, /* a scalar */
    { T("U8",
        "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
        "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
        "1",
        "0,1"),
      1, NULL },
    { T("U8", "0", "0,0"), 0, NULL },
    { T("U8", "0," MAX, "0,0"), 0, NULL },
    { T("U8", MAX ",0", "0,0"), 0, NULL },
    { T("F64", MAX ",0", "0,0"), 0, NULL },
    { T("U8", MAX ",2,0", "0,0"), 0, "overflows 64 bits at dim 1" },
    { T("U8", MAX "," MAX, "0,0"), 0, "overflows 64 bits at dim 1" },
    { T("U8", "4294967296,4294967296", "0,0"), 0, "overflows 64 bits" },
    { T("U8", MAX, "0," MAX), 0, "elements of U8 overflow 64 bits" },
    { T("U8", "2305843009213693952", "0,2305843009213693952"), 0,
      "elements of U8 overflow 64 bits" }, /* 2^61 x 8 bits */
    { T("U8", "2305843009213693951", "0,2305843009213693951"), 0,
      "the header promises 2305843009213693951 bytes" },
    { T("F4", "4611686018427387904", "0,2305843009213693952"), 0,
      "elements of F4 overflow" }, /* 2^62 x 4 bits */
    { T("F64", "288230376151711744", "0,2305843009213693952"), 0,
      "elements of F64 overflow" },
    { T("U8", "18446744073709551616", "0,0"), 0, "a dim of shape is 18446" },
    { T("U8", "99999999999999999999999999999999999999999999999", "0,0"), 0,
      "a dim of shape is 9999999999999999999999999999999999999999..." },
    { T("U8", "1.0", "0,1"), 1, "a dim of shape is 1.0 (expected an integer" },
    { T("U8", "1e0", "0,1"), 1, "a dim of shape is 1e0" },
    { T("U8", "1E0", "0,1"), 1, "a dim of shape is 1E0" },
    { T("U8", "-0", "0,0"), 0, "a dim of shape is -0" },
    { T("U8", "-1", "0,1"), 1, "a dim of shape is -1" },
    { T("U8", "+1", "0,1"), 1, "a dim of shape is +1" },
    { T("U8", "01", "0,1"), 1, "a dim of shape is 01" },
    { T("U8", "00", "0,0"), 0, "a dim of shape is 00" },
    { T("U8", "0x1", "0,1"), 1, "is 'x'" },
    { T("U8", "'1'", "0,1"), 1, "a dim of shape is \"1\"" },
    { T("U8", "null", "0,1"), 1, "a dim of shape is null" },
    { T("U8", "true", "0,1"), 1, "a dim of shape is true" },
    { T("U8", "1", "0.0,1"), 1, "an offset of data_offsets is 0.0" },
    { T("U8", "1", "0,1.0"), 1, "an offset of data_offsets is 1.0" },
    { T("U8", "1", "-0,1"), 1, "an offset of data_offsets is -0" },
    { T("U8", "1", "0,1e0"), 1, "an offset of data_offsets is 1e0" },
    { T("U8", "1", "'0',1"), 1, "an offset of data_offsets is \"0\"" },
    { T("U8", "0", "0,18446744073709551616"), 0, "data_offsets is 18446" },
    { T("U8", "0", MAX "," MAX), 0, "begins at byte " MAX },
    { T("U8", "1", "1,0"), 1, "end at 0, before they begin at 1" },
    { T("U8", "1", MAX ",0"), 1, "end at 0, before they begin" },
    { T("U8", "2", "0,1"), 1, "span 1 bytes (expected 2 for 2 elements" },
    { T("U8", "1", "0,2"), 2, "span 2 bytes (expected 1" },
    { T("F32", "3", "0,3"), 3, "span 3 bytes (expected 12" },
    { T("U8", "", "0,0"), 0, "span 0 bytes (expected 1" },
    { T("F4", "2,3", "0,3"), 3, NULL }, /* 24 bits */
    { T("F4", "3", "0,1"), 1, "3 elements of F4 are 12 bits" },
    { T("F4", "3", "0,2"), 2, "3 elements of F4 are 12 bits" },
    { T("F4", "", "0,1"), 1, "1 elements of F4 are 4 bits" },
    { T("F6_E2M3", "4", "0,3"), 3, NULL },
    { T("F6_E3M2", "4", "0,3"), 3, NULL },
    { T("F6_E3M2", "2", "0,1"), 1, "are 12 bits" },
    { T("F4", "0", "0,0"), 0, NULL },
};

static const struct rule place_rules[] = {
    { "{'b':" E("U8", "1", "1,2") ",'a':" U8 "}", 2, NULL }, /* any order */
    { "{'c':" E("I16", "1", "3,5") ",'a':" E("U8", "3", "0,3") ",'b':" E(
          "F64", "1", "5,13") "}",
      13, NULL }, /* unaligned */
    { "{'a':" E("U8", "0", "0,0") ",'b':" E("U8", "0", "0,0") "}", 0, NULL },
    { "{'a':" U8 ",'b':" E("U8", "0", "1,1") ",'c':" E("U8", "1", "1,2") "}", 2,
      NULL },
    { "{'c':" E("U8", "1", "1,2") ",'b':" E("U8", "0", "1,1") ",'a':" U8 "}", 2,
      NULL },
    { T("U8", "1", "1,2"), 2, "the first tensor, \"t\", begins at byte 1" },
    { "{'a':" U8 ",'b':" E("U8", "1", "2,3") "}", 3,
      "tensor \"b\" begins at byte 2 of the data, but \"a\" ends at 1 (a hole" },
    { "{'a':" E("U8", "2", "0,2") ",'b':" E("U8", "2", "1,3") "}", 3,
      "tensor \"b\" begins at byte 1 of the data, but \"a\" ends at 2 (they" },
    { "{'a':" U8 ",'b':" U8 "}", 1, "overlap" }, /* two names for one */
    { "{'a':" E("U8", "2", "0,2") ",'b':" E("U8", "0", "1,1") "}", 2,
      "overlap" }, /* an empty one inside another */
    { "{'a':" U8 ",'b':" E("U8", "0", "2,2") "}", 1, "a hole" },
    { "{'a':" E("U8", "0", "1,1") ",'b':" U8 "}", 1, NULL },
    { "{}", 1,
      "the header promises 0 bytes from byte 10 on, but the file has "
      "11 bytes" },
    { T("U8", "1", "0,1"), 0,
      "the header promises 1 bytes from byte 61 on, "
      "but the file has 61 bytes" },
    { T("U8", "1", "0,1"), 2, "but the file has 63 bytes" },
};

/* Parses JSON with ' for " and 'data' zeros behind it. */
static int
parse(struct st *st, const char *json, size_t nbytes, size_t data,
      struct err *err)
{
    char *file = xcalloc(8 + nbytes + data, 1);
    int rc;

    put_le64(file, nbytes);
    for (size_t i = 0; i < nbytes; i++)
        file[8 + i] = json[i] == '\'' ? '"' : json[i];
    *err = (struct err){ 0 };
    rc = st_parse(st, file, 8 + nbytes + data, 8 + nbytes + data, "f", err);
    free(file);
    return rc;
}

static void
check_rule(const char *table, size_t i, const struct rule *rule)
{
    struct err err;
    struct st st;
    int rc = parse(&st, rule->json, strlen(rule->json), rule->data, &err);
    struct str shown = { 0 };

    str_esc(&shown, rule->json, strlen(rule->json));
    if (!rule->bad)
        tap_ok(rc == 0, "%s rule %zu is valid: %.80s %s", table, i, shown.s,
               err.what);
    else
        tap_ok(rc < 0 && err.status == EX_DATAERR &&
                   !strncmp(err.what, "f: ", 3) && strstr(err.what, rule->bad),
               "%s rule %zu is refused with '%s': %.80s", table, i, rule->bad,
               rc < 0 ? err.what : "valid");
    if (rc == 0)
        st_close(&st);
    str_free(&shown);
}

#define CHECK(table)                                            \
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) \
    check_rule(#table, i, table + i)

static void
test_raw_nul(void)
{
    static const char *const json[] = { "{'a\0b':" U8 "}", "{}\0", "\0{}",
                                        "{\0}" };
    static const size_t n[] = { sizeof("{'a\0b':" U8 "}") - 1, 3, 3, 3 };
    struct err err;
    struct st st;

    for (size_t i = 0; i < 4; i++)
        tap_ok(parse(&st, json[i], n[i], i == 0, &err) < 0 &&
                   strstr(err.what, "is 0x00"),
               "a raw NUL is refused (%zu): %s", i, err.what);
}

/* 'depth' levels in all: the header, the entry, and arrays or objects. */
static int
parse_nested(int depth, const char *open, const char *close)
{
    struct str s = { 0 };
    struct err err;
    struct st st;
    int rc;

    str_adds(&s, "{'t':{'dtype':'U8','shape':[0],'data_offsets':[0,0],'x':");
    for (int i = 2; i < depth; i++)
        str_adds(&s, open);
    if (*open == '{')
        str_adds(&s, "0");
    for (int i = 2; i < depth; i++)
        str_adds(&s, close);
    str_adds(&s, "}}");
    rc = parse(&st, s.s, s.n, 0, &err);
    if (rc == 0)
        st_close(&st);
    else if (!strstr(err.what, "at most 128 levels"))
        rc = -2;
    str_free(&s);
    return rc;
}

static void
test_nesting(void)
{
    tap_ok(parse_nested(128, "[", "]") == 0, "128 levels of arrays are read");
    tap_ok(parse_nested(129, "[", "]") == -1, "129 levels are refused");
    tap_ok(parse_nested(128, "{'a':", "}") == 0, "128 levels of objects");
    tap_ok(parse_nested(129, "{'a':", "}") == -1, "129 levels of objects");
    tap_ok(parse_nested(100000, "[", "]") == -1, "100000 levels are refused");
}

static void
test_dtypes(void)
{
    /* Twenty-four elements are whole bytes for every type. */
    static const struct {
        const char *name;
        size_t nbytes;
    } sizes[] = {
        { "BOOL", 24 },        { "F4", 12 },          { "F6_E2M3", 18 },
        { "F6_E3M2", 18 },     { "U8", 24 },          { "I8", 24 },
        { "F8_E5M2", 24 },     { "F8_E4M3", 24 },     { "F8_E8M0", 24 },
        { "F8_E4M3FNUZ", 24 }, { "F8_E5M2FNUZ", 24 }, { "I16", 48 },
        { "U16", 48 },         { "F16", 48 },         { "BF16", 48 },
        { "I32", 96 },         { "U32", 96 },         { "F32", 96 },
        { "C64", 192 },        { "F64", 192 },        { "I64", 192 },
        { "U64", 192 },
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct str s = { 0 };
        struct err err;
        struct st st;
        int rc;

        str_addf(&s,
                 "{'t':{'dtype':'%s','shape':[2,3,4],'data_offsets':[0,%zu]}}",
                 sizes[i].name, sizes[i].nbytes);
        rc = parse(&st, s.s, s.n, sizes[i].nbytes, &err);
        tap_ok(rc == 0 && st.tensors->nbytes == sizes[i].nbytes &&
                   st.tensors->n_elements == 24 &&
                   !strcmp(dtype_table[st.tensors->dtype].name, sizes[i].name),
               "24 elements of %s are %zu bytes", sizes[i].name,
               sizes[i].nbytes);
        st_close(&st);
        str_free(&s);
    }
}

/* What __metadata__ say of a key, and as a number. */
static void
test_meta(void)
{
    static const char json[] =
        "{'__metadata__':{'a':'x','a\\u0000b':'y','n':'2.5','m':'-0',"
        "'e':'','t':'2.5 ','z':'2\\u0000','i':'inf','big':'1e999'}}";
    static const char *const bad[] = { "a", "e", "t", "z", "i", "big" };
    struct err err;
    struct st st;
    double v = 0;

    if (!tap_ok(parse(&st, json, sizeof(json) - 1, 0, &err) == 0,
                "metadata are read: %s", err.what))
        return;
    tap_ok(!strcmp(st_meta(&st, "a"), "x"), "a key is not one that continues");
    tap_ok(!st_meta(&st, "") && !st_meta(&st, "b") && !st_meta_find(&st, "y") &&
               st_meta_find(&st, "z")->value_n == 2,
           "keys that are not there have no value");
    tap_ok(st_meta_f64(&st, "n", &v, &err) == 1 && v == 2.5, "2.5 is a number");
    tap_ok(st_meta_f64(&st, "m", &v, &err) == 1 && v == 0, "-0 is a number");
    tap_ok(st_meta_f64(&st, "q", &v, &err) == 0, "no key is no number");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        tap_ok(st_meta_f64(&st, bad[i], &v, &err) == -1 &&
                   err.status == EX_DATAERR &&
                   strstr(err.what, "(expected a number)"),
               "no number is refused: %s", err.what);
    st_close(&st);
}

int
main(void)
{
    CHECK(json_rules);
    CHECK(string_rules);
    CHECK(entry_rules);
    CHECK(meta_rules);
    CHECK(number_rules);
    CHECK(place_rules);
    test_raw_nul();
    test_nesting();
    test_dtypes();
    test_meta();
    return tap_done();
}
