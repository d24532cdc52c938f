// SPDX-License-Identifier: MIT
/* Work for SQLite: inserts, an index, a join, a sort, in memory. */
#include <stdio.h>
#include <stdlib.h>
#include "sqlite3.h"

static void run(sqlite3 *db, const char *text)
{
	char *error = 0;

	if (sqlite3_exec(db, text, 0, 0, &error) != SQLITE_OK) {
		fprintf(stderr, "%s\n", error);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	int rows = argc > 1 ? atoi(argv[1]) : 1000;
	sqlite3_stmt *insert;
	sqlite3 *db;

	if (sqlite3_open(":memory:", &db) != SQLITE_OK)
		return 1;
	run(db, "create table t(a integer primary key, b integer, c text); begin");
	sqlite3_prepare_v2(db, "insert into t(b, c) values(?, ?)", -1, &insert, 0);
	for (int i = 0; i < rows; i++) {
		char name[32];

		snprintf(name, sizeof(name), "row %d", i * 7919 % rows);
		sqlite3_bind_int(insert, 1, i * 31 % 1000);
		sqlite3_bind_text(insert, 2, name, -1, SQLITE_TRANSIENT);
		sqlite3_step(insert);
		sqlite3_reset(insert);
	}
	sqlite3_finalize(insert);
	run(db, "commit; create index i on t(b); create table u as select b, count(*) n, max(c) m "
		"from t group by b order by m; update t set c = c || 'x' where b % 3 = 0");
	run(db, "select t.a, u.n from t join u on t.b = u.b where t.c like '%9x' order by u.m, t.a");
	printf("%d changes\n", sqlite3_total_changes(db));
	return sqlite3_close(db) != SQLITE_OK;
}
