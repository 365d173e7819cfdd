# The behaviour of README.md in Perl.
use strict;
use warnings;
use Errno qw(EEXIST EINVAL ENOENT ENOTEMPTY);
use Fcntl qw(:DEFAULT :mode);

$| = 1;
my $echo = $ARGV[0] // '/bin/echo';

sub put {
    my ($path, $text, $how) = @_;
    open(my $file, $how // '>', $path) or die "$path: $!\n";
    print $file $text or die "$path: $!\n";
    close($file) or die "$path: $!\n";
}

sub get {
    my ($path) = @_;
    open(my $file, '<', $path) or die "$path: $!\n";
    local $/;
    return scalar <$file>;
}

sub kind {
    my $mode = (lstat shift)[2];
    return S_ISREG($mode) ? 'file' : S_ISDIR($mode) ? 'directory' : S_ISLNK($mode) ? 'link' : 'other';
}

sub is_gone { return !lstat(shift) && $! == ENOENT }

mkdir 'work' or die $!;
mkdir 'work/dir' or die $!;
my $lines = join '', map { "line $_\n" } 1 .. 3000;
put('work/data', $lines);
put('work/data', "the end\n", '>>');
my $data = get('work/data');
printf "read back: %d bytes, %d lines%s\n", length $data, ($data =~ tr/\n//), $data eq "${lines}the end\n" ? '' : ', others';

my $made = sysopen(my $again, 'work/data', O_WRONLY | O_CREAT | O_EXCL);
printf "exclusive: %s\n", !$made && $! == EEXIST ? 'exists' : 'made';

chmod 0640, 'work/data' or die $!;
my @before = lstat 'work/data';
printf "lstat data: %s %d %o\n", kind('work/data'), $before[7], $before[2] & 07777;

rename 'work/data', 'work/renamed' or die $!;
my $same = (lstat 'work/renamed')[1] == $before[1];
printf "renamed: %s inode, data is %s\n", $same ? 'same' : 'other', is_gone('work/data') ? 'gone' : 'there';

put('work/kept', "old\n");
put('work/other', "other\n");
rename 'work/other', 'work/kept' or die $!;
print 'replaced: ', get('work/kept');

symlink 'renamed', 'work/link' or die $!;
printf "lstat link: %s to %s\n", kind('work/link'), readlink 'work/link';
printf "readlink renamed: %s\n", !defined(readlink 'work/renamed') && $! == EINVAL ? 'not a link' : 'a link';

put('work/echo', get($echo));
put('work/run', "#!/bin/sh\necho script \$1\n");
chmod 0755, 'work/echo', 'work/run';
system('work/echo', 'ran', 'well') == 0 or die "work/echo: $?\n";
system('work/run', 'well') == 0 or die "work/run: $?\n";

opendir(my $directory, 'work') or die $!;
my @listed = sort map { "$_ " . kind("work/$_") } grep { !/^\./ } readdir $directory;
print 'list: ', join(', ', @listed), "\n";

truncate 'work/renamed', 6 or die $!;
print 'truncated: ', get('work/renamed'), "\n";

unlink 'work/renamed' or die $!;
printf "removed: %s\n", is_gone('work/renamed') ? 'gone' : 'there';
printf "rmdir work: %s\n", !rmdir('work') && $! == ENOTEMPTY ? 'not empty' : 'removed';

chdir 'work/dir' or die $!;
put('deep', "deep\n");
print 'below: ../kept is ', get('../kept');
chdir '../..' or die $!;

open(my $big, '>', 'work/big') or die $!;
syswrite($big, 'k' x 1000) == 1000 or die $! for 1 .. 300;
close($big) or die $!;
printf "big: %d\n", (lstat 'work/big')[7];
