"""DDL message: the content of the logical messages that the DDL event triggers send. Pure.

`source.ddl_trigger` sends one transactional message per command, with prefix `auditlake:ddl` and this JSON:

    v, tag, session_user     1, the command tag, the role that logged in
    relations                tables changed by the command and their partitions, each with its shape after it: oid,
                             schema, name, kind, persistence, identity, file (relfilenode), partition, parents, columns
    columns                  [attnum, name, type, typmod, flags, base, missing]: flags n (not null), k (part of the
                             replica identity, or of the primary key), g (stored generated), v (virtual generated),
                             a and d (identity always, by default), m (has a missing value); base: schema and name of a
                             domain's base type; missing: the missing value as an array's text
    dropped                  [object type, OID, attnum or 0, address] of tables and columns
    rewritten                [OID, reason]: 1 persistence, 2 default value, 4 column type, 8 access method
    types                    types changed by the command: oid, array, schema, name, kind, base, labels, attributes

A missing member is empty. The message stands in the stream where the command ran: rows before it have the former shape,
except those of CREATE TABLE AS, which come before its message.
"""

PREFIX = "auditlake:ddl"
