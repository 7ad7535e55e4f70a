"""Effect of functions on a column whose text is not its value: read the text, return it, compare it, or order it. Pure.

Names are those of sqlglot's nodes or, if it has none, of the functions, in lower case without underscores. A function
that is in no set may do anything: only columns that compare as their values do may be passed to it.
"""

from sqlglot import exp

_OF_TEXT = """
ascii base64 bitlength btrim charlength concat concatws contains crc32 dpipe encode endswith exacttext findinset
format formatnumber formatstring fromjson groupconcat hash hex ilike initcap instr jsonarraylength jsonextract
jsonextractscalar jsonformat jsonobjectkeys jsontuple left length levenshtein like locate lower luhncheck mask md5
octetlength overlay pad parsejson parseurl printf quote regexpcount regexpextract regexpextractall regexpilike
regexpinstr regexplike regexpreplace regexpsplit regexpsubstr repeat replace reverse right schemaofjson sha sha2
similarto soundex split splitpart startswith stringtoarray strposition strtomap substr substring substringindex
tobase64 tobinary tochar todate tojson tonumber totimestamp tovarchar translate trim tryparsejson trytobinary
trytodate trytonumber trytotimestamp tryvariantget typeof unbase64 unhex upper urldecode urlencode variantget
tsordstodate strtotime strtodate strtounix xxhash64
"""
OF_TEXT = frozenset(_OF_TEXT.split())
"""Compute something from the text; a function over an array may return elements of it."""

_MATCHES = """
contains endswith findinset ilike instr levenshtein like locate regexpcount regexpextract regexpextractall regexpilike
regexpinstr regexplike regexpreplace regexpsplit regexpsubstr replace similarto split splitpart startswith
stringtoarray strposition substringindex translate
"""
MATCHES = frozenset(_MATCHES.split())
"""Those of them that compare parts of the text, which a type or a collation may do in its own way: `citext`."""

_IS_PLAIN = """
approxdistinct arraycontains arrayjoin arrayposition arraysize arraysoverlap arraytostring cardinality count countif
equalnull exists forall isnotnull isnull logicaland logicalor mapcontainskey rownumber size typeof
"""
IS_PLAIN = frozenset(_IS_PLAIN.split())
"""Return something that is no value of their arguments."""

_RETURNS = """
aliases anyvalue array arrayagg arrayappend arraycompact arrayconcat arrayfilter arrayinsert arrayprepend arrayrepeat
arrayreverse arrayslice arrayszip bracket coalesce dot elementat elt explode explodeouter filter first firstvalue
flatten get if ifnull iff ignorenulls inline inlineouter lag last lastvalue lead mapfromarrays mapvalues namedstruct
nthvalue nvl nvl2 paren posexplode posexplodeouter propertyeq reduce respectnulls shuffle slice stack struct transform
transformvalues tryelementat tuple zipwith
"""
RETURNS = frozenset(_RETURNS.split())
"""Return arguments, or parts of them, unchanged."""

_OF_ELEMENTS = """
arraymax arraymin bracket elementat explode explodeouter get inline inlineouter posexplode posexplodeouter reduce
tryelementat
"""
OF_ELEMENTS = frozenset(_OF_ELEMENTS.split())
"""Return elements of an array."""

_COMPARES = """
approxdistinct approxtopk approxtopkaccumulate arraycontains arraydistinct arrayexcept arrayintersect arrayposition
arrayremove arraysoverlap arrayunion arrayuniqueagg countminsketch decode decodecase equalnull hllsketchagg map
mapcontainskey mode nullif thetasketchagg varmap
"""
COMPARES = frozenset(_COMPARES.split())
"""Compare arguments, or their elements, for equality."""

_ORDERS = """
approxpercentile approxquantile argmax argmin arraymax arraymin arraysort greatest histogramnumeric least max median
min percentile percentilecont percentiledisc quantile sortarray
"""
ORDERS = frozenset(_ORDERS.split())
"""Compare arguments, or their elements, by order."""


def function_name(node: exp.Expr) -> str:
    """Return the name of a function or an operator as these sets have it."""
    name = node.name if isinstance(node, exp.Anonymous) else type(node).__name__
    return name.replace("_", "").lower()
