# SPDX-License-Identifier: ISC
"""Small templates, one for each way to write something, and for each mistake.

chat_template_ref.py prints them with what Jinja2 makes of them.
"""
import itertools
import os

from chat_template_features import is_more

V = {"s": "Hello, World", "t": " \t padded \n", "e": "", "c": "a,b,,c",
     "u": "Grün Σίσυφος 世界 👩‍🚀", "n": 7, "z": 0, "m": -3, "f": 2.5, "g": 1e17,
     "yes": True, "no": False, "nil": None, "xs": ["b", "a", "C", "a"],
     "ns": [3, 1, 2], "empty": [], "ed": {},
     "d": {"b": 1, "a": "x", "C": None, "items": "own", "k": {"x": [1, "y"]}},
     "ms": [{"role": "user", "content": "hi"},
            {"role": "assistant", "content": None},
            {"role": "user", "content": "yo", "n": 1}]}

# A template a line; "\n" and "\t" in the text of a template are written as
# control pictures, so that a line is a line.
FORMS = r"""
{{ s }}{{ n }}{{ m }}{{ f }}{{ g }}{{ yes }}{{ no }}{{ nil }}{{ missing }}|
{{ 1.0 }} {{ 1e3 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 100000000000000.0 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e+3 }} {{ 2E2 }}
{{ 9223372036854775807 }} {{ -9223372036854775807 }}
{{ true }}{{ True }}{{ false }}{{ False }}{{ none }}{{ None }}
{{ 'it\'s' }} {{ "a\"b" }} {{ 'a\nb\tc\\d' }} {{ "\x41\u00e9\U0001F600" | tojson }} {{ 'un\known \d \/ \(' }}
{{ '\a\b\f\v\r' | tojson }} {{ "\u4e16\u754c" }} {{ '世界 é' }} {{ "'" }} {{ '"' }} {{ '' }} {{ 'a' 'b' "c" }}
{{ '\ud83d' }}
{{ '\x4' }}
{{ 'a␤b' }} {{ 'a\␤b' }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 3 }}
{{ 2 * xs | length }} {{ 7 // ns | length }} {{ 7 % ns | length - 1 }} {{ 1 / ns | length * 2 }} {{ 1 - xs | length * 2 }} {{ n * s is string }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 - -1 }} {{ - - 1 }} {{ -m }} {{ n - 1 }} {{ n-1 }} {{ n -1 }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1 // 0 }}
{{ 9223372036854775807 + 1 }}␤{# no number of 64 bits #}
{{ 1 + yes }} {{ yes + yes }} {{ yes * 3 }} {{ 'ab' * 3 }} {{ 2 * 'ab' }} {{ 'ab' * -1 }}| {{ ([1] * 2) | tojson }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ 'a' + nil }}
{{ 'a' + missing }}
{{ missing + 'a' }}
{{ s - 1 }}
{{ nil + 1 }}
{{ [1] + 'a' }}
{{ ([1] + [2, [3]]) | tojson }} {{ (1, 2) + (3,) == (1, 2, 3) }} {{ [1] == (1,) }}
{{ [1] + (2,) }}
{{ 'a' ~ 1 ~ 2.5 ~ none ~ true ~ missing ~ 'b' }} {{ 1 ~ 2 + 3 }} {{ 'a' ~ 'b' + 'c' }} {{ 1 + 2 ~ 3 }} {{ 2 * 3 ~ 4 }} {{ -1 ~ 1 }}
{{ s ~ xs }}
{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 1 == '1' }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ 'é' > 'z' }} {{ 1 != 2 }} {{ 1 <= 1 }} {{ 2 >= 3 }} {{ none == none }} {{ none == missing }} {{ missing == missing2 }} {{ none == false }} {{ 0 == false }} {{ '' == false }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ [] < 1 }}
{{ missing < 1 }}
{{ d == d }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1, [2]] == [1, [2]] }} {{ {'a': 1} == {'a': 1.0} }}
{{ 'lo' in s }} {{ '' in s }} {{ 'x' not in s }} {{ 'a' in xs }} {{ 1 in [true] }} {{ 'b' in d }} {{ 'zz' in d }} {{ 'a' in missing }} {{ none in [none] }} {{ not 'a' in xs }} {{ 1 in (1, 2) }} {{ 2 in range(3) }} {{ [] in [[]] }}
{{ 1 in s }}
{{ none in s }}
{{ 'a' in none }}
{{ 'a' in 5 }}
{{ [] in d }}
{{ not yes }} {{ not not s }} {{ yes and no }} {{ s and n }} {{ e or 'x' }} {{ z or nil }} {{ 1 and 2 or 3 }} {{ no and missing.x }} {{ yes or missing.x }} {{ not 1 == 2 }} {{ not yes and no }} {{ e and 1 }}|
{{ 'a' if yes else 'b' }} {{ 'a' if no }}| {{ 'a' if no else 'b' if no else 'c' }} {{ ('a' if yes) ~ 'x' }} {{ 1 if yes and no else 2 }} {{ (1 if yes else 2) + 1 }} {{ 1 if yes else 2 + 1 }}
{{ ('a' if no).x }}
{{ s[0] }} {{ s[-1] }} {{ s[1:3] }} {{ s[:5] }} {{ s[-5:] }} {{ s[::-1] }} {{ s[::2] }} {{ s[7:2:-2] }} {{ s[100:] }}| {{ s[-100:3] }} {{ s[:] }} {{ u[2] }} {{ u[-3:] }} {{ s[none:3] }} {{ s[1:none] }}
{{ s[100] }}| {{ xs[100] }}| {{ xs[-1] }} {{ xs[0] }} {{ xs[1:] | join }} {{ xs[::-1] | join }} {{ xs[:-1] | join }} {{ xs[-2:] | join }} {{ xs[2:1] | join }}| {{ xs[5::-2] | join }} {{ (1, 2, 3)[1:] | join }} {{ xs[yes] }} {{ xs['a'] }}|
{{ s[::0] }}|
{{ s['a':] }}|
{{ s[1.5:] }}|
{{ xs[::0] | join }}|
{{ xs[1.0] }}| {{ xs[none] }}| {{ xs[missing] }}|
{{ nil[1:] }}|
{{ missing[1:] }}
{{ d[1:] }}|
{{ d.b }} {{ d['b'] }} {{ d.a }} {{ d['items'] }} {{ d.C }} {{ d.nope }}| {{ d['nope'] }}| {{ d.k.x[1] }} {{ d['k']['x'][0] }} {{ d.k['x'].1 }} {{ xs.0 }} {{ xs.1 ~ xs.2 }} {{ ms[0].role }} {{ ms.0.content }} {{ ms[-1]['n'] }}
{{ d.nope.x }}
{{ missing.x }}
{{ missing['x'] }}
{{ nil.x }}| {{ nil['x'] }}| {{ n.x }}| {{ s.x }}| {{ s['x'] }}| {{ yes.x }}| {{ xs.x }}|
{{ nil.x.y }}
{{ missing() }}
{{ s() }}
{{ d.nope() }}
{{ s.nope() }}
{{ nil.strip() }}
{{ n.strip() }}
{{ d['items']() }}
{{ d.items is defined }} {{ d.items is string }} {{ d['items'] is string }} {{ d.keys is defined }} {{ ed.items is defined }} {{ {'get': 1}.get is number }} {{ {'get': 1}['get'] }} {{ ed.pop is defined }}
{{ d.update }}| {{ d.__class__ }}| {{ s.__len__ }}| {{ xs.append }}|
{{ d.update({}) }}
{{ xs.append(1) }}
{{ d.pop('a') }}
{{ xs.insert(0, 1) }}
{{ xs.sort() }}
{{ d.clear() }}
{{ d.setdefault('x', 1) }}
{{ xs.extend([1]) }}
{{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.get('C', 5) }} {{ ed.get('x', 'y') }} {{ ms[0].get('role') }} {{ d.get('k').get('x')[0] }}
{{ d.get() }}
{{ d.get('a', 'b', 'c') }}
{{ d.get('a', default='b') }}
{{ 'a' in d.keys() }} {{ d.keys() | list | join(',') }} {{ ed.values() | list | length }} {% for v in d.k.values() %}{{ v | join }}{% endfor %}
{% for k, v in d.k.items() %}{{ k }}{{ v[0] }}{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for k in d.items() %}{{ k[0] }}{{ k | length }}{% endfor %} {{ ed.items() | list | length }}
{% for k, v in ed.items() %}x{% else %}none{% endfor %}
{% for k, v in xs %}{{ k }}{% endfor %}
{% for k, v in [(1, 2), [3, 4], 'ab'] %}{{ k }}{{ v }}{% endfor %}
{% for k, v in [(1, 2, 3)] %}{{ k }}{% endfor %}
{% for k, v in [5] %}{{ k }}{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in 5 %}x{% endfor %}
{% for x in none %}x{% endfor %}
{% for x in missing %}x{% else %}y{% endfor %}
{% for x in 'añb' %}{{ x }}-{% endfor %} {% for x in (1, 2) %}{{ x }}{% endfor %} {% for x in range(3) %}{{ x }}{% endfor %} {% for x in range(5, 0, -2) %}{{ x }}{% endfor %} {% for x in 1, 2 %}{{ x }}{% endfor %}
{% for x in range(0, 3, 0) %}{% endfor %}
{% for x in range('a') %}{% endfor %}
{% for x in range(1.5) %}{% endfor %}
{% for x in range() %}{% endfor %}
{{ range(1000000) | length }}
{{ range(5) | length }} {{ range(3)[1] }} {{ range(10)[2:5] | join }} {{ range(3) | list | tojson }} {{ range(0) | list | tojson }} {{ range(2) | join(',') }} {{ range(-1) | length }}
{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}
{% for x in xs %}{{ loop.previtem }}|{{ loop.nextitem }}|{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}
{% for m in ms %}{{ loop.previtem.role }}|{% endfor %}
{% for m in ms %}{% if loop.previtem and loop.previtem.role == 'user' %}u{% endif %}{{ loop.nextitem.role if loop.nextitem is defined }}{% endfor %}
{% for x in xs %}{% for y in ns %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.index }} {% endfor %}
{% for x in xs %}{% set o = loop %}{% for y in ns %}{{ o.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for x in xs if x != 'a' %}{{ loop.index }}{{ x }}{{ loop.last }}{{ loop.length }}{% else %}none{% endfor %}
{% for x in xs if x == 'q' %}{{ x }}{% else %}none{{ x }}{% endfor %}
{% for x in xs if loop.first %}{{ x }}{% endfor %}
{{ loop }}|{{ loop.index }}
{% for x in ns %}{{ loop.cycle('a', 'b') }}{% endfor %}
{% for x in ns %}{{ loop.changed(x > 1) }}{% endfor %}
{% for x in ns %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %} {% for x in ns %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}z{% endfor %}
{% for x in [] %}{% else %}{{ loop }}e{% endfor %}
{% for x in ns %}{% break %}{% else %}e{% endfor %}|
{% break %}
{% if yes %}{% continue %}{% endif %}
{% for x in ns %}{% set n = x %}{{ n }}{% endfor %}{{ n }}
{% set x = 1 %}{% for y in ns %}{{ x }}{% set x = y %}{{ x }}{% endfor %}{{ x }}
{% for x in ns %}{% endfor %}{{ x }}|
{% set x = 5 %}{% for x in ns %}{{ x }}{% endfor %}{{ x }}
{% if yes %}{% set x = 1 %}{% endif %}{{ x }} {% if no %}{% set y = 1 %}{% endif %}{{ y }}| {% if no %}{% set n = 1 %}{% endif %}{{ n }}
{% if no %}a{% elif nil %}b{% elif yes %}c{% else %}d{% endif %}{% if e %}x{% endif %}{% if ed %}x{% endif %}{% if empty %}x{% endif %}{% if z %}x{% endif %}{% if 0.0 %}x{% endif %}{% if missing %}x{% endif %}{% if ' ' %}y{% endif %}{% if [0] %}y{% endif %}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set a, b = 'xy' %}{{ a }}{{ b }} {% set t2 = 1, 2 %}{{ t2 | length }} {% set (p, q) = [3, 4] %}{{ p }}{{ q }}
{% set a, b = 1 %}
{% set a, b = [1, 2, 3] %}
{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x | length }} {% set x | upper %}q{% endset %}{{ x }} {% set x | trim | upper %}  q {% endset %}{{ x }}
{% set ns1 = namespace() %}{% set ns1.a = 1 %}{{ ns1.a }}{{ ns1.b }}| {% set ns1 = namespace(a=1, b='x') %}{% for x in ns %}{% set ns1.a = ns1.a + x %}{% endfor %}{{ ns1.a }}{{ ns1['b'] }}
{% set ns1 = namespace({'a': 1}, b=2) %}{{ ns1.a }}{{ ns1.b }} {% set ns1.b = ns1 %}{{ ns1.b.a }} {{ ns1.a is defined }}{{ ns1.q is defined }}
{% set q.a = 1 %}
{% set d.a = 1 %}
{% set n.a = 1 %}
{% set ns1 = namespace() %}{% macro f() %}{% set ns1.x = 5 %}{% endmacro %}{{ f() }}{{ ns1.x }}
{% set ns1 = namespace(x=[]) %}{% for y in ns %}{% set ns1.x = ns1.x + [y] %}{% endfor %}{{ ns1.x | join(',') }}
{{ namespace(a=1) }}
{% macro f(a, b=2, c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c='q') }} {{ f(b=1, a=2) }} {{ f() }} {{ f('x') | upper }} {{ f(1) ~ f(2) }} {{ f(1) | length }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(q=2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}
{% macro f() %}{{ varargs | join('+') }}{{ kwargs | length }}{% endmacro %}{{ f(1, 2, x=3) }}
{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(3) }}
{% macro f(a, b=n) %}{{ b }}{% endmacro %}{{ f(3) }}
{% macro f(a=1, b) %}{{ b }}{% endmacro %}
{% macro f() %}{{ n }}{% set n = 1 %}{{ n }}{% endmacro %}{{ f() }}{{ n }}
{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 2 %}{{ f() }}
{% macro f() %}{{ y }}{% endmacro %}{{ f() }}|{% set y = 2 %}{{ f() }}|
{% macro f(k) %}{{ k }}{% if k %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% macro f() %}{{ g1() }}{% endmacro %}{% macro g1() %}g{% endmacro %}{{ f() }}
{{ f(1) }}{% macro f(a) %}{{ a }}{% endmacro %}
{% for x in ns %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}
{% for x in ns %}{% macro f() %}{{ loop.index }}{% endmacro %}{{ f() }}{% endfor %}
{% macro f() %}{{ loop.index }}{% endmacro %}{% for x in ns %}{{ f() }}{% endfor %}
{% if yes %}{% macro f() %}in{% endmacro %}{% endif %}{{ f() }}
{% macro f() %}{% endmacro %}{{ f }}
{% macro f() %}x{% endmacro %}{% if f %}y{% endif %} {{ f is callable }}
{% macro f(x) %}{% for x in x %}{{ x }}{% endfor %}{{ x | length }}{% endmacro %}{{ f(ns) }}
{% macro f(s) %}{% set s = s + '!' %}{{ s }}{% endmacro %}{{ f('a') }}{{ s }}
{% macro m1(x) %}{% if x is not defined %}{% set x = 'dflt' %}{% endif %}{{ x }}{% endmacro %}{{ m1() }}{{ m1(1) }}
{% macro m1() %}{% if zz is not defined %}{% set zz = 'dflt' %}{% endif %}{{ zz }}{% endmacro %}{{ m1() }}{{ zz }}|
{% set f = s.upper %}{{ f() }}
{{ n | string | length }} {{ s | length }} {{ u | length }} {{ xs | length }} {{ d | length }} {{ missing | length }} {{ xs | count }} {{ ([]) | length }}
{{ n | length }}
{{ nil | length }}
{{ s | upper }} {{ s | lower }} {{ u | upper }} {{ u | lower }} {{ n | upper }} {{ nil | lower }} {{ missing | upper }}|
{{ xs | upper }}
{{ t | trim }}| {{ ' x ' | trim | length }} {{ 'xxaxx' | trim('x') }} {{ n | trim }} {{ nil | trim }} {{ missing | trim }}| {{ '  a b  ' | trim }}|
{{ t | tojson }} {{ u | tojson }} {{ d | tojson }} {{ xs | tojson }} {{ n | tojson }} {{ f | tojson }} {{ nil | tojson }} {{ yes | tojson }} {{ '<b>&amp;\'"</b>' | tojson }} {{ (1, 2) | tojson }} {{ [] | tojson }} {{ {} | tojson }} {{ 1e21 | tojson }} {{ 1.0 | tojson }} {{ "\x7f\u2028\x01" | tojson }}
{{ d | tojson(indent=2) }} {{ xs | tojson(indent=0) }} {{ [] | tojson(indent=2) }} {{ {} | tojson(indent=4) }} {{ [[], {}, [1]] | tojson(indent=1) }} {{ d | tojson(2) }} {{ d | tojson(indent=none) }} {{ u | tojson(ensure_ascii=true) }} {{ u | tojson(true) }}
{{ d | tojson(separators=(',', ':')) }} {{ d | tojson(separators=(', ', ': ')) }} {{ {'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true) }} {{ d | tojson(indent=2, separators=(',', ':')) }} {{ [1, 2] | tojson(separators=[';', ':']) }} {{ {'b': [1, {'z': 1, 'a': 2}]} | tojson(indent=4, sort_keys=true) }} {{ xs | tojson(indent='--') }}
{{ missing | tojson }}
{{ [missing] | tojson }}
{{ {'a': missing} | tojson }}
{{ namespace(a=1) | tojson }}
{{ d.items() | tojson }}
{{ d | tojson(bogus=1) }}
{{ {1: 2} | tojson }} {{ {true: 1, none: 2} | tojson }} {{ {1.5: 1} | tojson }}
{{ {(1, 2): 2} | tojson }}
{{ d | items | list | length }} {% for k, v in d | items %}{{ k }}{% endfor %} {{ missing | items | list | length }}
{{ xs | items | list }}
{{ nil | items | list }}
{{ missing | default('x') }} {{ nil | default('x') }} {{ nil | default('x', true) }} {{ e | default('x') }}| {{ e | default('x', true) }} {{ z | default(5, boolean=true) }} {{ missing | default }}| {{ missing | d('y') }} {{ d.nope | default('q') }} {{ missing | default(none) }} {{ s | default('x') }} {{ (missing.x is defined) if no else 1 }}
{{ missing.x | default('y') }}
{{ s | list | join('-') }} {{ xs | list | join }} {{ d | list | join(',') }} {{ missing | list | length }} {{ (1, 2) | list | tojson }} {{ range(3) | list | length }}
{{ n | list }}
{{ nil | list }}
{{ s | safe }} {{ n | safe }} {{ '<' | safe }} {{ missing | safe }}| {{ s | safe | upper }}
{{ xs | join(', ') }} {{ ns | join('-') }} {{ xs | join }} {{ [] | join(',') }}| {{ [1, none, true, 2.5, 'x'] | join(' ') }} {{ 'abc' | join('.') }} {{ missing | join(',') }}| {{ ms | join(',', attribute='role') }} {{ xs | join(1) }} {{ d | join(',') }} {{ [missing, 1] | join(',') }}
{{ [[1]] | join(',') }}
{{ n | join(',') }}
{{ nil | join }}
{{ ms | selectattr('role', 'equalto', 'user') | list | length }} {{ ms | selectattr('n') | list | length }} {{ ms | selectattr('n', 'defined') | list | length }} {{ ms | selectattr('content', 'none') | map(attribute='role') | join }} {{ ms | selectattr('role', '==', 'user') | map(attribute='content') | join(',') }} {{ ms | selectattr('role', 'in', ['user', 'x']) | list | length }} {{ ms | selectattr('role', 'ne', 'user') | list | length }}
{{ ms | rejectattr('role', 'equalto', 'user') | list | length }} {{ ms | rejectattr('n') | list | length }} {{ ms | rejectattr('n', 'undefined') | list | length }} {{ ms | selectattr('q.z') | list | length }}
{{ ms | selectattr('role', 'nope') | list }}
{{ ms | selectattr() | list }}
{{ n | selectattr('x') | list }}
{{ ms | map(attribute='role') | join(',') }} {{ ms | map(attribute='n') | list | length }} {{ xs | map('upper') | join }} {{ ns | map('string') | map('length') | join }} {{ xs | map('default', 'x') | join }} {{ [[1, 2], [3]] | map('join', '+') | join(' ') }} {{ ms | map(attribute='content.x') | list | length }} {{ [d] | map(attribute='k.x.1') | join }} {{ [[1, 2]] | map(attribute=0) | join }} {{ [[1, 2]] | map(attribute='1') | join }}
{{ xs | map('nope') | list }}
{{ xs | map() | list }}
{{ xs | map('upper') }}
{{ xs | map('upper') | length }}
{{ xs | reject('equalto', 'a') | join }} {{ xs | select('equalto', 'a') | join }} {{ [0, 1, '', 'x'] | select | join }} {{ [0, 1, '', 'x'] | reject | list | length }} {{ [1, 'a', none] | select('string') | join }} {{ xs | reject('in', ['a']) | join }} {{ [1, 2, 3] | select('gt', 1) | join }} {{ ns | select('odd') | join }}
{% if ms | selectattr('role', 'equalto', 'nobody') %}always{% endif %} {% if ms | selectattr('role', 'equalto', 'nobody') | list %}x{% else %}never{% endif %}
{% set g1 = xs | map('upper') %}{{ g1 | join }}|{{ g1 | join }}|{% for x in g1 %}{{ x }}{% endfor %}
{% set g1 = d | items %}{{ g1 | list | length }}{{ g1 | list | length }} {% set g1 = d.items() %}{{ g1 | list | length }}{{ g1 | list | length }}
{% for x in xs | map('upper') %}{{ loop.index }}{{ x }}{{ loop.last }}{{ loop.nextitem }}{{ loop.length }} {% endfor %}
{% for k, v in d | dictsort %}{{ k }}{% endfor %} {% for k, v in {'b': 2, 'A': 3, 'c': 1} | dictsort(by='value') %}{{ k }}{% endfor %} {% for k, v in {'b': 2, 'A': 3, 'c': 1} | dictsort(true) %}{{ k }}{% endfor %} {% for k, v in {'b': 2, 'A': 3, 'c': 1} | dictsort(false, 'key', true) %}{{ k }}{% endfor %} {% for k, v in {'b': 2, 'A': 3} | dictsort(reverse=true) %}{{ k }}{{ v }}{% endfor %}
{{ xs | dictsort }}
{{ d | dictsort(by='nope') }}
{{ d | dictsort(by='value') | list | length }}
{{ c.split(',') | join('|') }} {{ t.split() | join('|') }} {{ 'a b  c' .split() | tojson }} {{ 'a b  c'.split(' ') | tojson }} {{ c.split(',', 1) | join('|') }} {{ c.split(',', maxsplit=2) | join('|') }} {{ c.split(none, 1) | tojson }} {{ ''.split() | tojson }} {{ ''.split(',') | tojson }} {{ ' a  b c '.split(none, 1) | tojson }} {{ 'aXXbXXc'.split('XX')[-1] }} {{ c.split(sep=',')[0] }} {{ c.split(',', 0) | tojson }} {{ c.split(',', -1) | length }}
{{ c.split('') }}
{{ c.split(1) }}
{{ t.strip() }}| {{ t.lstrip() }}| {{ t.rstrip() }}| {{ 'xyaxy'.strip('xy') }} {{ 'xyaxy'.lstrip('yx') }} {{ 'xyaxy'.rstrip('y') }} {{ t.strip(none) }}| {{ 'a'.strip('') }} {{ '世a世'.strip('世') }} {{ '\u3000a\x85\x1c'.strip() }}|
{{ t.strip(1) }}
{{ s.startswith('Hel') }} {{ s.endswith('ld') }} {{ s.startswith('') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('World', 3) }} {{ s.startswith('ello', 1) }} {{ s.endswith('Hel', 0, 3) }} {{ ''.startswith('a') }} {{ u.startswith('Grü') }}
{{ s.startswith(1) }}
{{ s.startswith(['H']) }}
{{ s.startswith() }}
{{ s.startswith(missing) }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.replace('', '-') }} {{ s.replace('zz', 'y') }} {{ s.replace('Hello', '') }} {{ 'aaa'.replace('aa', 'b') }} {{ u.replace('世', 'W') }} {{ s.replace('l', 'L', -1) }} {{ s.replace('l', 'LL', 0) }} {{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 2) }} {{ 'ab'.replace('', '-', 2) }}
{{ s.replace('l') }}
{{ s.replace(1, 'x') }}
{{ s.upper() }} {{ s.lower() }} {{ u.upper() }} {{ u.lower() }} {{ 'hello world'.title() }} {{ 'hELLO'.capitalize() }}
{{ ', '.join(xs) }} {{ ''.join(['a']) }} {{ '-'.join('abc') }} {{ ','.join([]) }}|
{{ ','.join(ns) }}
{{ ','.join(1) }}
{{ missing is defined }} {{ n is defined }} {{ nil is defined }} {{ missing is undefined }} {{ d.nope is defined }} {{ d.a is defined }} {{ missing is not defined }} {{ d['nope'] is not defined }} {{ xs[10] is defined }} {{ not missing is defined }}
{{ missing.x is defined }}
{{ s is string }} {{ n is string }} {{ nil is none }} {{ missing is none }} {{ s is iterable }} {{ xs is iterable }} {{ n is iterable }} {{ nil is iterable }} {{ d is iterable }} {{ missing is iterable }} {{ d is mapping }} {{ xs is mapping }} {{ s is mapping }} {{ s is sequence }} {{ xs is sequence }} {{ d is sequence }} {{ n is sequence }} {{ missing is sequence }} {{ nil is sequence }} {{ (1,) is sequence }} {{ range(3) is sequence }} {{ d.items() is sequence }} {{ d.items() is iterable }} {{ (xs | map('upper')) is sequence }} {{ (xs | map('upper')) is iterable }}
{{ yes is true }} {{ yes is false }} {{ 1 is true }} {{ no is false }} {{ 0 is false }} {{ missing is false }} {{ nil is false }} {{ yes is boolean }} {{ n is boolean }} {{ n is number }} {{ f is number }} {{ yes is number }} {{ s is number }} {{ n is integer }} {{ f is integer }} {{ yes is integer }} {{ f is float }} {{ n is float }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is equalto(7) }} {{ n is ne 7 }} {{ n is gt 3 }} {{ n is lt 3 }} {{ n is ge 7 }} {{ n is le 7 }} {{ n is in [7] }} {{ n is not in [7] }} {{ s is in s }} {{ n is sameas n }} {{ s is lower }} {{ 'A' is upper }} {{ namespace(a=1) is mapping }}
{{ s is string and n is number }} {{ s is string == true }} {{ not s is string }} {{ s is not string }} {{ (s is string) ~ 1 }} {{ n + 1 is number }} {{ - n is number }} {{ s | length is number }} {{ n is defined and n > 1 }} {{ n is string or s is string }}
{{ n is nope }}
{{ n is string is true }}
{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y, %H:%M:%S %A %B %j %p %I %y %%') }} {{ strftime_now('') }}| {{ strftime_now('no directives é') }} {{ strftime_now('%-d %e') }}
{{ strftime_now() }}
{{ raise_exception('a message: "quoted" é') }}
{{ raise_exception('') }}
{{ raise_exception('n is ' ~ n) }}
a{% if no %}{{ raise_exception('no') }}{% endif %}b
{{ raise_exception() }}
{% set x = raise_exception('in a set') %}
{% macro f() %}{{ raise_exception('in a macro') }}{% endmacro %}{{ f() }}
{{ [1, 2,] | length }} {{ (1,) | length }} {{ () | length }} {{ {'a': 1,}.a }} {{ {'a': {'b': [1, 2]}}.a.b[1] }} {{ {} | length }} {{ [[], [1]][1][0] }} {{ {'a': 1, 'a': 2}.a }} {{ {n: 1}[7] }} {{ {s: 1}[s] }}
{{ {[]: 1} }}
{{ dict(a=1, b=2).b }} {{ dict(d, z=1).z }} {{ dict({'a': 1}) | length }}
{{ xs }}
{{ d }}
{{ () }}
{{ d.items() }}
{{ d.keys() }}
{{ range(3) }}
{{ xs | string }}
{{ range }}
{{ s.upper }}
{{ f | int }} {{ '12' | int }} {{ 'x' | int }} {{ '1.5' | float }} {{ m | abs }} {{ f | round }} {{ 2.567 | round(2) }} {{ ns | sum }} {{ ns | max }} {{ ns | min }} {{ ns | sort | join }} {{ xs | sort | join }} {{ xs | unique | join }} {{ ns | reverse | join }} {{ s | reverse }} {{ ns | first }} {{ ns | last }} {{ [] | first }}| {{ s | first }} {{ s | capitalize }} {{ 'ab cd' | title }} {{ s | replace('l', 'x') }} {{ 'a␤b' | indent(2) }} {{ 'a b c' | wordcount }} {{ s | truncate(5) }} {{ '<&>' | escape }} {{ '<' | e }} {{ [1, 2, 3] | batch(2) | list | length }} {{ ns | sort(reverse=true) | join }} {{ ms | groupby('role') | list | length }} {{ 'a b' | urlencode }}
{{ 1 if }}
{{ s | }}
{{ s..x }}
{{ 'a }}
{{ a b }}
{{ }}
{{ (1 }}
{{ [1 }}
{{ {'a' 1} }}
{{ 1 + }}
{{ == 1 }}
{{ s.'a' }}
{{ s | upper( }}
{{ f(a=1, 2) }}
{{ f(*xs) }}
{{ f(**d) }}
{{ $ }}
{{ a ? b }}
{{ 'a' | 'b' }}
{% if %}a{% endif %}
{% if yes %}a
{% endif %}
{% for %}{% endfor %}
{% for x in %}{% endfor %}
{% for x xs %}{% endfor %}
{% for x in xs %}
{% endfor %}
{% else %}
{% elif yes %}
{% if yes %}{% else %}{% else %}{% endif %}
{% if yes %}{% endfor %}
{% for x in xs %}{% endif %}
{% set %}
{% set x %}
{% set x = %}
{% set 1 = 2 %}
{% set x.y.z = 2 %}
{% set x[0] = 2 %}
{% set none = 2 %}
{% set loop = 2 %}
{% for loop in xs %}{% endfor %}
{% for x in xs %}{% set loop = 2 %}{% endfor %}
{% for none in xs %}{% endfor %}
{% macro %}{% endmacro %}
{% macro f %}{% endmacro %}
{% macro f() %}
{% macro f(1) %}{% endmacro %}
{% nope %}
{% endraw %}
{% %}
{%
{{
{# # }
{{ 1 } }
{% if yes }a{% endif %}
{%if yes%}a{%endif%}{{s}}{{-s-}}{%-if yes-%}b{%-endif-%}{{n+1}}{{n|string}}{{n|string|length}}{{d['b']}}{{'}}'}}{{ "%}" }}{{ {'a':{}}|tojson }}
{% raw %}{{ a }}{% b %}{# c #}{% endraw %}|{%- raw -%} x {%- endraw -%} |{% raw %}␤ y ␤{% endraw %}␤z
{# a {{ b }} {% c %} #}x{#- y -#} z{# '#' #}|{# {# nested #} #}
a{# comment #}␤b {#c#}␤  {# d #}␤  {#- e #} f {# g -#}  h
}} %} #} { { { % } %  } x {{ '{{' }} {{ "{%" }} {{ '#}' }}
{% if yes %}{% if no %}{% else %}{% for x in ns %}{% if x > 1 %}{{ x }}{% endif %}{% endfor %}{% endif %}{% endif %}
{% generation %}a{{ n }}{% endgeneration %}b{% for x in ns %}{% generation %}{{ x }}{{ u }}{% endgeneration %},{% endfor %}
{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}|
{% set x = 5 %}{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}|
{% for x in ns %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% generation %}{% endgeneration %}|
{% generation %}
{% endgeneration %}
{% set content = 'x' %}{% for m in ms %}{% if m.content is string %}{% set content = m.content %}{% endif %}{{ content }} {% endfor %}{{ content }}
{% set messages = ms[1:] %}{{ messages | length }}{% set ms = [] %}{{ ms | length }}
{{ n if n is defined else 'x' }}{{ 'y' if not missing else 'z' }}{{ (n is defined) and (n > 3) }}
{{ ms[0].role ~ ms[1].content ~ ms[2].n }}{{ ms[0]['role'] + ': ' + ms[0]['content'] }}{{ ms | length - 1 }}{{ (ms | length) - 1 }}{{ ms[ms | length - 1].role }}{{ ms[(ms | length) - 1]['n'] }}
{{ ms[0].role | upper ~ 'x' }}{{ 'x' ~ ms[0].role | upper }}{{ ('x' ~ ms[0].role) | upper }}{{ 'a' + 'b' | upper }}{{ ('a' + 'b') | upper }}{{ -1 | string }}{{ not e | upper }}{{ 1 + 2 | string | length }}
{{ s.split(', ')[0].lower().startswith('h') }}{{ s.lower().split('o')[-1] | upper }}{{ (s ~ '!').strip('!').replace('World', u)[7:] }}{{ 'x'.join(s.split('o')) }}{{ s | lower | upper | length }}
"""

# What is not supported is named, with its line.
REFUSED = r"""
2 include␤{% include 'x' %}
2 include␤{%- include 'x' ignore missing -%}
2 import␤{% import 'x' as y %}
2 from␤{% from 'x' import y %}
2 extends␤{% extends 'x' %}
2 block␤{% block x %}{% endblock %}
2 nope␤{% nope %}
2 nope␤{{ s | nope }}
2 nope␤{{ s | upper | nope(1) }}
2 nope␤{{ n is nope }}
2 nope␤{% if n is not nope(1) %}{% endif %}
3 nope␤␤{{ s.nope() }}
4 lipsum␤␤{% if yes %}␤{{ lipsum() }}{% endif %}
3 missing␤␤{{ missing.x }}
3 zz␤{% for x in xs %}␤{{ zz.y }}{% endfor %}
2 do␤{% do xs.append(1) %}
2 with␤{% with x = 1 %}{% endwith %}
2 call␤{% call f() %}{% endcall %}
2 filter␤{% filter upper %}a{% endfilter %}
2 indent␤{{ s | indent(2) }}
2 groupby␤{{ ms | groupby('role') }}
3 divisibleby␤␤{{ n is divisibleby 7 }}
2 format␤{{ '%s' | format(1) }}
2 autoescape␤{% autoescape true %}{% endautoescape %}
2 zfill␤{{ s.zfill(10) }}
2 recursive␤{% for x in xs recursive %}{% endfor %}
2 trans␤{% trans %}a{% endtrans %}
3 append␤␤{{ xs.append(1) }}
"""

SPACES = {
    "block": "%sset x = 1%s", "comment": "%s c %s", "variable": "%s n %s",
    "if": "%sif yes%s"}
MARKS = {"block": ("{%", "%}"), "if": ("{%", "%}"), "comment": ("{#", "#}"),
         "variable": ("{{", "}}")}


def spaces():
    """Each mark with each way to trim, in each surrounding."""
    befores = ["", "a", "a ", "a\n", "a\n \t", " ", "\n\n  ", "a\r\n  "]
    afters = ["", "b", "\n", "\nb", " \nb", "\n\n b", "\r\nb", "  b", "\t{{ n }}"]
    for kind, body in SPACES.items():
        begin, end = MARKS[kind]
        for trim_before, trim_after in itertools.product(["", "-", "+"],
                                                         ["", "-", "+"]):
            if kind == "variable" and "+" in (trim_before, trim_after):
                continue
            mark = body % (begin + trim_before, trim_after + end)
            tail = "{% endif %}" if kind == "if" else ""
            for before, after in itertools.product(befores, afters):
                yield before + mark + after + tail


ENDS = ["a\n", "a\n\n", "a\r\n", "a\r", "\n", "", "a\rb\r\nc\n\rd",
        "{{ 'a\r\nb' }}", "{% if yes %}\r\na\r\n{% endif %}\r\n",
        "{{ n }}\n", "{{ n }}\n\n", "{% set x = 1 %}\n", "{# c #}\n",
        "{{ n -}}\n", "a\u2028b\x0b\x0cc\x85", "  {{ n }}\n  {% if yes %}\n"
        "    x\n  {% endif %}\n  y", "\t{%- if yes %} {% endif -%}\t z",
        "{% if yes -%}\n\n a {%- endif %}\n\nb",
        "\ufeffa", "{{ n }}\x1f{%- set x = 1 -%}\u3000a",
        "a \u00a0{%- set x = 1 -%}\u00a0 b", "a\x0b{% set x = 1 %}b",
        "\x0c {% set x = 1 %}b", "a\n\x0b {% set x = 1 %}\x0b\nb",
        "{{ n\x0c}}{{\x0bn }}{{ n\u00a0}}", "{{\u3000n }}"]


def cases(put, render, strict):
    plain = [line.replace("␤", "\n") for line in FORMS.strip().split("\n")]
    texts = [text for t in plain for text in split(t)]
    for text in texts:
        want = render(text, V, strict)
        if not want.get("error", "").startswith("Beyond: a "):
            put("form", text, V, want, more=is_more(strict, text))
    small = {"n": 7, "yes": True}
    every = 1 if "TEMPLATE_CASES" in os.environ else 5
    trimmed = itertools.islice(spaces(), 0, None, every)
    for text in itertools.chain(trimmed, ENDS):
        put("spaces", text, small, render(text, small, strict))
    for line in REFUSED.strip().split("\n"):
        head, text = line.split("␤", 1)
        line, says = head.split(" ")
        text = "\n" + text.replace("␤", "\n")
        want = {"error": "not supported", "line": int(line), "says": says,
                "exact": True}
        put("refused", text, V, want)


def split(line):
    """A form of many expressions, each for itself, and the whole."""
    parts = line.split("}} {{")
    yield line
    if len(parts) > 1 and "%" not in line:
        for i, part in enumerate(parts):
            yield ("{{" if i else "") + part + \
                ("}}" if i < len(parts) - 1 else "")
