-- Source of the recorded bytes. walk.json has the expected rows, written by hand.
set client_encoding = 'UTF8';

create table items (id int primary key, name text, note text);
alter table items alter note set storage external;
create schema "Ünï";
create table "Ünï"."a ""b"" c" ("Ключ" int primary key, "V 1" numeric(6, 2), big text);
alter table "Ünï"."a ""b"" c" replica identity full;
alter table "Ünï"."a ""b"" c" alter big set storage external;
create type mood as enum ('sad', 'ok');
create table moods (id int, m mood not null, code text not null);
create unique index moods_code on moods (code);
alter table moods replica identity using index moods_code;
create table unpublished (id int primary key);
create publication p for table items, "Ünï"."a ""b"" c", moods;
select pg_create_logical_replication_slot('s', 'pgoutput');

begin;
insert into items values (1, 'one', repeat('x', 3000)), (2, null, '');
insert into items values (3, E'tab\there', '€ 😀');
commit;

-- Unchanged TOAST; then a key change beside it, and one of a row with NULL and ''.
update items set name = 'uno' where id = 1;
update items set id = 11 where id = 1;
update items set id = 10 where id = 2;
update items set note = null where id = 11;
delete from items where id = 3;

-- Every old value is sent; a TOASTed one is in the old row and still not in the new one.
insert into "Ünï"."a ""b"" c" values (1, 1.5, repeat('y', 3000)), (2, null, null);
update "Ünï"."a ""b"" c" set "V 1" = -0.05 where "Ключ" = 1;
delete from "Ünï"."a ""b"" c" where "Ключ" = 2;

-- Identity by an index: the key is `code`.
insert into moods values (1, 'sad', 'a');
update moods set m = 'ok', id = null where code = 'a';
update moods set code = 'b' where code = 'a';

begin;
insert into items values (20, 'kept', null);
savepoint one;
insert into items values (21, 'rolled back', null);
update items set name = 'rolled back' where id = 20;
rollback to one;
insert into items values (22, 'kept', null);
commit;

begin;
insert into items values (23, 'rolled back', null);
rollback;
insert into unpublished values (1);
select pg_logical_emit_message(false, 'auditlake', 'not transactional');

begin;
select pg_logical_emit_message(true, 'auditlake', '{"user": "ann é"}');
update items set name = 'why' where id = 20;
select pg_logical_emit_message(true, 'other', '\x00ff'::bytea);
commit;

-- One transaction with several changes of one key.
begin;
insert into items values (30, 'a', '');
update items set name = 'b' where id = 30;
delete from items where id = 30;
insert into items values (30, 'c', null);
commit;

alter table moods add column extra int default 5;
insert into moods values (2, 'sad', 'c');

select pg_replication_origin_create('far');
select pg_replication_origin_session_setup('far');
delete from moods where code = 'c';
select pg_replication_origin_session_reset();

truncate items, "Ünï"."a ""b"" c" restart identity;
