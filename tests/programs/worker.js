// The behaviour of README.md in JavaScript; some by promises, which work in other threads.
const fs = require('fs');
const { spawnSync } = require('child_process');

const kind = (entry) =>
    entry.isFile() ? 'file' : entry.isDirectory() ? 'directory' : entry.isSymbolicLink() ? 'link' : 'other';
const say = (text) => fs.writeSync(1, text + '\n');
const failsWith = (code, act) => {
    try {
        act();
    } catch (error) {
        return error.code === code;
    }
    return false;
};
const isGone = (path) => failsWith('ENOENT', () => fs.lstatSync(path));
const run = (path, ...args) => {
    const { status } = spawnSync(path, args, { stdio: 'inherit' });
    if (status !== 0) say(`${path} ended with ${status}`);
};

async function main() {
    const echo = process.argv[2] || '/bin/echo';
    fs.mkdirSync('work');
    await fs.promises.mkdir('work/dir');
    let lines = '';
    for (let i = 1; i <= 3000; i++) lines += `line ${i}\n`;
    await fs.promises.writeFile('work/data', lines);
    fs.appendFileSync('work/data', 'the end\n');
    const data = await fs.promises.readFile('work/data', 'utf8');
    const equal = data === lines + 'the end\n' ? '' : ', others';
    say(`read back: ${data.length} bytes, ${data.split('\n').length - 1} lines${equal}`);

    say(`exclusive: ${failsWith('EEXIST', () => fs.openSync('work/data', 'wx')) ? 'exists' : 'made'}`);

    fs.chmodSync('work/data', 0o640);
    const before = fs.lstatSync('work/data', { bigint: true });
    say(`lstat data: ${kind(before)} ${before.size} ${(Number(before.mode) & 0o7777).toString(8)}`);

    await fs.promises.rename('work/data', 'work/renamed');
    const same = fs.lstatSync('work/renamed', { bigint: true }).ino === before.ino;
    say(`renamed: ${same ? 'same' : 'other'} inode, data is ${isGone('work/data') ? 'gone' : 'there'}`);

    fs.writeFileSync('work/kept', 'old\n');
    fs.writeFileSync('work/other', 'other\n');
    fs.renameSync('work/other', 'work/kept');
    say(`replaced: ${fs.readFileSync('work/kept', 'utf8').trimEnd()}`);

    fs.symlinkSync('renamed', 'work/link');
    say(`lstat link: ${kind(fs.lstatSync('work/link'))} to ${fs.readlinkSync('work/link')}`);
    say(`readlink renamed: ${failsWith('EINVAL', () => fs.readlinkSync('work/renamed')) ? 'not a link' : 'a link'}`);

    await fs.promises.copyFile(echo, 'work/echo');
    fs.writeFileSync('work/run', '#!/bin/sh\necho script $1\n');
    fs.chmodSync('work/echo', 0o755);
    fs.chmodSync('work/run', 0o755);
    run('work/echo', 'ran', 'well');
    run('work/run', 'well');

    const entries = await fs.promises.readdir('work', { withFileTypes: true });
    say(`list: ${entries.map((entry) => `${entry.name} ${kind(entry)}`).sort().join(', ')}`);

    fs.truncateSync('work/renamed', 6);
    say(`truncated: ${fs.readFileSync('work/renamed', 'utf8')}`);

    await fs.promises.unlink('work/renamed');
    say(`removed: ${isGone('work/renamed') ? 'gone' : 'there'}`);
    say(`rmdir work: ${failsWith('ENOTEMPTY', () => fs.rmdirSync('work')) ? 'not empty' : 'removed'}`);

    process.chdir('work/dir');
    fs.writeFileSync('deep', 'deep\n');
    say(`below: ../kept is ${fs.readFileSync('../kept', 'utf8').trimEnd()}`);
    process.chdir('../..');

    const big = fs.createWriteStream('work/big');
    for (let i = 0; i < 300; i++) big.write('k'.repeat(1000));
    await new Promise((done) => big.end(done));
    say(`big: ${fs.lstatSync('work/big').size}`);
}

main().catch((error) => {
    say(String(error));
    process.exit(1);
});
