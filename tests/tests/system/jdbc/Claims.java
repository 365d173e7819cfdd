// Arrow's JDBC driver as it comes from Maven Central, as a tool would use it: java -cp DRIVER Claims.java CLAIM URL TOKEN.
// A claim that holds prints its name.

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;

class Claims {
    static String url;
    static String token;

    public static void main(String[] arguments) throws Exception {
        url = arguments[1];
        token = arguments[2];
        switch (arguments[0]) {
            case "connects" -> connects();
            case "metadata" -> metadata();
            case "types" -> types();
            case "parameters" -> parameters();
            case "cancel" -> cancel();
            case "errors" -> errors();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println(arguments[0]);
        System.exit(0); // The driver's threads are no reason to stay.
    }

    static Connection connect() throws SQLException {
        Properties properties = new Properties();
        properties.put("token", token);
        return DriverManager.getConnection(url, properties);
    }

    static void is(Object found, Object wanted) {
        if (!wanted.equals(found)) {
            throw new AssertionError(found + " is not " + wanted);
        }
    }

    static void has(String text, String part) {
        if (text == null || !text.contains(part)) {
            throw new AssertionError("`" + part + "` is not in: " + text);
        }
    }

    // All rows, each as its columns' texts.
    static List<List<String>> rows(ResultSet result) throws SQLException {
        List<List<String>> rows = new ArrayList<>();
        int columns = result.getMetaData().getColumnCount();
        while (result.next()) {
            List<String> row = new ArrayList<>();
            for (int column = 1; column <= columns; column++) {
                row.add(String.valueOf(result.getObject(column)));
            }
            rows.add(row);
        }
        result.close();
        return rows;
    }

    static List<List<String>> ask(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            return rows(statement.executeQuery(query));
        }
    }

    static void connects() throws Exception {
        try (Connection connection = connect()) {
            is(ask(connection, "SELECT x, sum(v) AS s FROM study GROUP BY x ORDER BY x LIMIT 2"),
                List.of(List.of("3", "4.5"), List.of("4", "13.5")));
        }
        Properties password = new Properties();
        password.put("user", "anybody");
        password.put("password", token);
        try (Connection connection = DriverManager.getConnection(url, password)) {
            is(ask(connection, "SELECT 1 AS one"), List.of(List.of("1")));
        }
        Properties wrong = new Properties();
        wrong.put("token", token + "x");
        try (Connection connection = DriverManager.getConnection(url, wrong)) {
            ask(connection, "SELECT 1");
            throw new AssertionError("a wrong token is taken");
        } catch (SQLException expected) {
            has(expected.toString(), "token");
        }
    }

    // What tools call when they connect: no method without arguments, or with a number, fails with what is no answer.
    static void metadata() throws Exception {
        try (Connection connection = connect()) {
            DatabaseMetaData metadata = connection.getMetaData();
            TreeSet<String> failed = new TreeSet<>();
            int called = 0;
            for (Method method : DatabaseMetaData.class.getMethods()) {
                List<Object> arguments = new ArrayList<>();
                for (Class<?> type : method.getParameterTypes()) {
                    if (type == int.class) {
                        boolean isOfTransactions = method.getName().equals("supportsTransactionIsolationLevel");
                        arguments.add(isOfTransactions ? Connection.TRANSACTION_NONE : ResultSet.TYPE_FORWARD_ONLY);
                    }
                }
                if (arguments.size() != method.getParameterCount() || method.getDeclaringClass() == Object.class) {
                    continue;
                }
                called++;
                try {
                    Object told = method.invoke(metadata, arguments.toArray());
                    if (told instanceof ResultSet result) {
                        rows(result);
                    }
                } catch (InvocationTargetException error) {
                    Throwable cause = error.getCause();
                    // What the driver, or the library below it, does not have at all is no server's matter.
                    boolean isAbsent = cause instanceof SQLFeatureNotSupportedException
                        || cause instanceof UnsupportedOperationException
                        || String.valueOf(cause.getMessage()).contains("todo: implement this method");
                    if (!isAbsent) {
                        failed.add(method.getName() + ": " + cause);
                    }
                }
            }
            System.out.println(called + " methods were called");
            is(failed, new TreeSet<String>());
            is(metadata.getDatabaseProductName(), "Terrace");
            is(metadata.getIdentifierQuoteString(), "\"");
            is(metadata.isReadOnly(), true);
            is(metadata.supportsGroupBy(), true);
            is(metadata.supportsFullOuterJoins(), true);
            is(metadata.supportsUnionAll(), true);
            is(metadata.supportsTransactions(), false);
            is(metadata.getMaxStatementLength(), 0);
            has(metadata.getNumericFunctions(), "sqrt");
            has(metadata.getStringFunctions(), "upper");
            has(metadata.getTimeDateFunctions(), "date_part");
            is(rows(metadata.getCatalogs()), List.of(List.of("terrace")));
            has(rows(metadata.getSchemas()).toString(), "root");
            has(rows(metadata.getTables(null, null, "stud%", new String[] {"TABLE"})).toString(), "study");
            is(rows(metadata.getTables(null, null, "no such%", null)), List.of());
            List<String> columns = new ArrayList<>();
            ResultSet told = metadata.getColumns(null, "root", "study", "%");
            while (told.next()) {
                columns.add(told.getString("COLUMN_NAME") + " " + told.getInt("DATA_TYPE"));
            }
            told.close();
            is(columns, List.of("x " + Types.BIGINT, "y " + Types.FLOAT, "v " + Types.DOUBLE, "w " + Types.INTEGER));
            is(rows(metadata.getPrimaryKeys(null, "root", "study")), List.of());
            is(rows(metadata.getImportedKeys(null, "root", "study")), List.of());
            is(rows(metadata.getExportedKeys(null, "root", "study")), List.of());
            is(rows(metadata.getCrossReference(null, "root", "study", null, "root", "study")), List.of());
        }
    }

    static void types() throws Exception {
        String query = "SELECT CAST(-1 AS TINYINT) AS i8, CAST(-300 AS SMALLINT) AS i16, CAST(7 AS INT) AS i32, CAST(8 AS BIGINT) AS i64,"
            + " CAST(100 AS TINYINT UNSIGNED) AS u8, CAST(0.5 AS REAL) AS f32, CAST(0.25 AS DOUBLE) AS f64, true AS b, 'é' AS t,"
            + " CAST('2026-01-02' AS DATE) AS d, CAST('2026-01-02T03:04:05' AS TIMESTAMP) AS ts, CAST(1.50 AS DECIMAL(10, 2)) AS n,"
            + " CAST(NULL AS BIGINT) AS nothing, x'00ff' AS bytes";
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            ResultSet row = statement.executeQuery(query);
            ResultSetMetaData told = row.getMetaData();
            List<Integer> types = new ArrayList<>();
            for (int column = 1; column <= told.getColumnCount(); column++) {
                types.add(told.getColumnType(column));
            }
            is(types, List.of(Types.TINYINT, Types.SMALLINT, Types.INTEGER, Types.BIGINT, Types.TINYINT, Types.FLOAT, Types.DOUBLE,
                Types.BOOLEAN, Types.VARCHAR, Types.DATE, Types.TIMESTAMP, Types.DECIMAL, Types.BIGINT, Types.VARBINARY));
            is(row.next(), true);
            is(row.getByte("i8"), (byte) -1);
            is(row.getShort("i16"), (short) -300);
            is(row.getInt("i32"), 7);
            is(row.getLong("i64"), 8L);
            is(row.getInt("u8"), 100); // From 128 on the driver has a negative number.
            is(row.getFloat("f32"), 0.5f);
            is(row.getDouble("f64"), 0.25);
            is(row.getBoolean("b"), true);
            is(row.getString("t"), "é");
            is(row.getDate("d").toString(), "2026-01-02");
            is(row.getTimestamp("ts").toLocalDateTime().toString(), "2026-01-02T03:04:05");
            is(row.getBigDecimal("n"), new BigDecimal("1.50"));
            is(row.getLong("nothing"), 0L);
            is(row.wasNull(), true);
            is(Arrays.toString(row.getBytes("bytes")), "[0, -1]");
            is(row.next(), false);
            is(ask(connection, "SELECT x, y, v, w FROM study WHERE x = 4 AND y > 15 ORDER BY y"),
                List.of(List.of("4", "20.0", "4.5", "3"), List.of("4", "40.0", "5.5", "4")));
        }
    }

    static void parameters() throws Exception {
        try (Connection connection = connect()) {
            String query = "SELECT count(*) AS n, '?' AS mark FROM study WHERE x >= ? AND y < ? AND v <> ? -- ?";
            try (PreparedStatement statement = connection.prepareStatement(query)) {
                is(statement.getParameterMetaData().getParameterCount(), 3);
                for (int[] turn : new int[][] {{3, 12}, {4, 9}, {6, 3}, {7, 0}}) {
                    statement.setLong(1, turn[0]);
                    statement.setFloat(2, 100f);
                    statement.setDouble(3, -1);
                    is(rows(statement.executeQuery()), List.of(List.of(String.valueOf(turn[1]), "?")));
                }
            }
            // A value means what it would mean if it stood there: 0.1 beside floats is their 0.1.
            try (PreparedStatement statement = connection.prepareStatement("SELECT count(*) FROM study WHERE y IN (?, ?)")) {
                statement.setFloat(1, 10f);
                statement.setFloat(2, 40f);
                is(rows(statement.executeQuery()), List.of(List.of("8")));
            }
            try (PreparedStatement statement = connection.prepareStatement(
                    "SELECT CAST($2 AS BIGINT) + 1 AS a, CAST($1 AS DATE) AS d, concat($3, '!') AS t, CAST($4 AS DOUBLE) AS e, $5 AS q")) {
                statement.setString(3, "it's \"quoted\"; DROP TABLE study --");
                statement.setString(2, "41");
                statement.setString(1, "2026-02-03"); // A text, as the statement does not tell its type.
                statement.setNull(4, Types.VARCHAR);
                statement.setString(5, "é");
                ResultSet row = statement.executeQuery();
                row.next();
                is(row.getLong("a"), 42L);
                is(row.getDate("d").toString(), "2026-02-03");
                is(row.getString("t"), "it's \"quoted\"; DROP TABLE study --!");
                is(row.getObject("e") == null, true);
                is(row.getString("q"), "é");
            }
            // Pages, as tools ask for them.
            try (PreparedStatement statement = connection.prepareStatement("SELECT x, y FROM study ORDER BY x, y LIMIT ? OFFSET ?")) {
                statement.setInt(1, 2);
                statement.setLong(2, 1);
                is(rows(statement.executeQuery()).size(), 2);
                List<List<String>> all = ask(connection, "SELECT x, y FROM study ORDER BY x, y");
                is(rows(statement.executeQuery()), all.subList(1, 3));
            }
            try (PreparedStatement statement = connection.prepareStatement("SELECT x FROM study WHERE w = ? ORDER BY y")) {
                statement.setInt(1, 3);
                is(rows(statement.executeQuery()), List.of(List.of("4")));
            }
        }
    }

    static void cancel() throws Exception {
        String counted = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b WHERE a.value * b.value % 7 = 3";
        try (Connection connection = connect()) {
            Statement statement = connection.createStatement();
            List<String> ends = new ArrayList<>();
            Thread asking = new Thread(() -> {
                try {
                    rows(statement.executeQuery(counted));
                    ends.add("answered");
                } catch (SQLException expected) {
                    ends.add(expected.getMessage());
                }
            });
            asking.start();
            await(1);
            statement.cancel();
            asking.join(10_000);
            has(ends.toString(), "Cancelling");
            await(0);
        }
        String listed = "SELECT a.value FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            ResultSet result = statement.executeQuery(listed);
            for (int row = 0; row < 1000; row++) {
                is(result.next(), true);
            }
            is(running(), 1L);
            statement.cancel();
            await(0);
        }
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(2);
            rows(statement.executeQuery(counted));
            throw new AssertionError("it has taken no longer than it may");
        } catch (SQLException expected) {
            System.out.println("timed out: " + expected.getMessage());
        }
        await(0);
    }

    // Until so many queries run.
    static void await(long count) throws Exception {
        for (int turn = 0; turn < 200 && running() != count; turn++) {
            Thread.sleep(50);
        }
        is(running(), count);
    }

    static long running() throws SQLException {
        try (Connection other = connect()) {
            String query = "SELECT count(*) FROM terrace.queries WHERE state = 'running' AND sql LIKE '%generate_series%'"
                + " AND sql NOT LIKE '%terrace.queries%'";
            return Long.parseLong(ask(other, query).get(0).get(0));
        }
    }

    static void errors() throws Exception {
        try (Connection connection = connect()) {
            String[][] wrong = {
                {"SELECT nothing FROM study", "nothing"},
                {"SELECT * FROM nowhere", "nowhere"},
                {"SELEC 1", "SELEC"},
                {"DROP TABLE study", ""},
                {"SELECT 1 / (x - x) FROM study", "zero"},
            };
            for (String[] query : wrong) {
                try {
                    ask(connection, query[0]);
                    throw new AssertionError(query[0] + " is answered");
                } catch (SQLException expected) {
                    has(expected.getMessage(), query[1]);
                }
            }
            try (PreparedStatement statement = connection.prepareStatement("SELECT x FROM study WHERE x = ?")) {
                rows(statement.executeQuery());
                throw new AssertionError("a parameter without a value is answered");
            } catch (SQLException expected) {
                System.out.println("no value: " + expected.getMessage());
            }
            // The connection is as good as before.
            is(ask(connection, "SELECT 1 AS one"), List.of(List.of("1")));
        }
    }
}
