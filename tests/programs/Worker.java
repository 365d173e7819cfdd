// The behaviour of README.md in Java.
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.nio.file.attribute.*;
import java.util.*;
import java.util.stream.*;

public class Worker {
    static final LinkOption NO_FOLLOW = LinkOption.NOFOLLOW_LINKS;

    static void put(String path, byte[] bytes, OpenOption... options) throws IOException {
        Files.write(Path.of(path), bytes, options);
    }

    static void put(String path, String text) throws IOException {
        Files.writeString(Path.of(path), text);
    }

    static String get(String path) throws IOException {
        return Files.readString(Path.of(path));
    }

    static String kind(Path path) throws IOException {
        BasicFileAttributes a = Files.readAttributes(path, BasicFileAttributes.class, NO_FOLLOW);
        return a.isRegularFile() ? "file" : a.isDirectory() ? "directory" : a.isSymbolicLink() ? "link" : "other";
    }

    static Object unix(String path, String what) throws IOException {
        return Files.getAttribute(Path.of(path), "unix:" + what, NO_FOLLOW);
    }

    static void run(String... command) throws Exception {
        System.out.flush();
        int status = new ProcessBuilder(command).inheritIO().start().waitFor();
        if (status != 0) System.out.println(command[0] + " ended with " + status);
    }

    static void chmod(String path, String permissions) throws IOException {
        Files.setPosixFilePermissions(Path.of(path), PosixFilePermissions.fromString(permissions));
    }

    public static void main(String[] arguments) throws Exception {
        String echo = arguments.length > 0 ? arguments[0] : "/bin/echo";
        Files.createDirectory(Path.of("work"));
        Files.createDirectory(Path.of("work/dir"));
        String lines = IntStream.rangeClosed(1, 3000).mapToObj(i -> "line " + i + "\n").collect(Collectors.joining());
        put("work/data", lines);
        put("work/data", "the end\n".getBytes(), StandardOpenOption.APPEND);
        String data = get("work/data");
        System.out.println("read back: " + data.length() + " bytes, " + data.lines().count() + " lines" + (data.equals(lines + "the end\n") ? "" : ", others"));

        String exclusive = "made";
        try {
            Files.createFile(Path.of("work/data"));
        } catch (FileAlreadyExistsException e) {
            exclusive = "exists";
        }
        System.out.println("exclusive: " + exclusive);

        chmod("work/data", "rw-r-----");
        System.out.println("lstat data: " + kind(Path.of("work/data")) + " " + unix("work/data", "size") + " " + Integer.toOctalString((Integer) unix("work/data", "mode") & 07777));

        Object inode = unix("work/data", "ino");
        Files.move(Path.of("work/data"), Path.of("work/renamed"), StandardCopyOption.ATOMIC_MOVE);
        System.out.println("renamed: " + (unix("work/renamed", "ino").equals(inode) ? "same" : "other") + " inode, data is " + (Files.notExists(Path.of("work/data"), NO_FOLLOW) ? "gone" : "there"));

        put("work/kept", "old\n");
        put("work/other", "other\n");
        Files.move(Path.of("work/other"), Path.of("work/kept"), StandardCopyOption.ATOMIC_MOVE);
        System.out.print("replaced: " + get("work/kept"));

        Files.createSymbolicLink(Path.of("work/link"), Path.of("renamed"));
        System.out.println("lstat link: " + kind(Path.of("work/link")) + " to " + Files.readSymbolicLink(Path.of("work/link")));
        String readlink = "a link";
        try {
            Files.readSymbolicLink(Path.of("work/renamed"));
        } catch (NotLinkException e) {
            readlink = "not a link";
        }
        System.out.println("readlink renamed: " + readlink);

        put("work/echo", Files.readAllBytes(Path.of(echo)));
        put("work/run", "#!/bin/sh\necho script $1\n");
        chmod("work/echo", "rwxr-xr-x");
        chmod("work/run", "rwxr-xr-x");
        run("work/echo", "ran", "well");
        run("work/run", "well");

        List<String> listed = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(Path.of("work"))) {
            for (Path entry : entries) listed.add(entry.getFileName() + " " + kind(entry));
        }
        Collections.sort(listed);
        System.out.println("list: " + String.join(", ", listed));

        try (FileChannel file = FileChannel.open(Path.of("work/renamed"), StandardOpenOption.WRITE)) {
            file.truncate(6);
        }
        System.out.println("truncated: " + get("work/renamed"));

        Files.delete(Path.of("work/renamed"));
        System.out.println("removed: " + (Files.notExists(Path.of("work/renamed"), NO_FOLLOW) ? "gone" : "there"));
        String rmdir = "removed";
        try {
            Files.delete(Path.of("work"));
        } catch (DirectoryNotEmptyException e) {
            rmdir = "not empty";
        }
        System.out.println("rmdir work: " + rmdir);

        put("work/dir/deep", "deep\n");
        System.out.print("below: ../kept is " + get("work/dir/../kept"));

        byte[] block = new byte[1000];
        Arrays.fill(block, (byte) 'k');
        try (var big = Files.newOutputStream(Path.of("work/big"))) {
            for (int i = 0; i < 300; i++) big.write(block);
        }
        System.out.println("big: " + unix("work/big", "size"));
    }
}
