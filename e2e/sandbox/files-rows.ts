import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { execFileSync } from 'node:child_process'
import { chmod, link, mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { isRoot } from '../../test/support/containment.ts'
import { runSandboxed, type Household } from '../../test/support/sandboxed.ts'
import { row, type Row } from './row.ts'

// Files of the host that a sandboxed run can see and change. This is only its own directory.

const SECRET = 'a key that nobody is to see'

const withSecrets = async (house: Household): Promise<readonly string[]> => {
  const secrets = [join(house.home, '.ssh', 'id'), join(house.home, '.x0x', 'agent.key'), join(house.home, 'letter')]
  for (const path of secrets) await writeFile(path, SECRET)
  return secrets
}

const sh = (text: string): string[] => ['sh', '-c', text]

export const FILE_ROWS: readonly Row[] = [
  row('a run writes to its directory at the original path, and the files stay', async (t, house) => {
    const { stdout, end } = await runSandboxed(t, house, sh('pwd -P; echo made > file; mkdir -p a/b; echo deep > a/b/c; cat a/b/c'))
    assert.deepEqual([stdout, end.code], [`${house.project}\ndeep\n`, 0])
    assert.equal(await readFile(join(house.project, 'file'), 'utf8'), 'made\n')
  }),

  row('a run cannot read secrets or other files of the home directory by any path', async (t, house) => {
    const secrets = await withSecrets(house)
    const ways = secrets.flatMap((path) => [
      path,
      `/proc/self/root${path}`,
      `/proc/1/root${path}`,
      `/proc/self/cwd/../${path.slice(house.home.length + 1)}`,
    ])
    const { stdout } = await runSandboxed(
      t,
      house,
      sh(`for f in ${ways.join(' ')}; do cat "$f" 2>/dev/null && echo READ; done; ls -A ${house.home}`),
    )
    assert.equal(stdout, 'project\n')
  }),

  row('a run cannot write, create or remove anything outside its directory', async (t, house) => {
    const beside = join(house.home, 'beside')
    await mkdir(beside)
    const places = ['/', '/usr', '/usr/bin', '/etc', '/etc/passwd', '/bin', '/dev', '/run', '/var', '/proc/sys/kernel/hostname']
    const tries = places.map(
      (place) => `(echo x > ${place}; echo x > ${place}/x0x-escape; mkdir ${place}/x0x-escape-dir) 2>/dev/null && echo WROTE ${place}`,
    )
    const { stdout } = await runSandboxed(
      t,
      house,
      sh(
        `${tries.join('; ')}; rm -rf /usr/bin/true /etc/passwd; echo x > ${beside}/file; echo x > ../beside; echo x > /tmp/x0x-escape-${process.pid}; rm -rf ..; rm -rf /tmp/*; echo done`,
      ),
    )
    assert.match(stdout, /^done$/m)
    assert.doesNotMatch(stdout, /WROTE/)
    for (const place of places) assert.equal(existsSync(join(place, 'x0x-escape')), false, place)
    assert.equal(existsSync(`/tmp/x0x-escape-${process.pid}`), false)
    assert.equal(existsSync('/etc/passwd'), true)
    assert.deepEqual([existsSync(beside), existsSync(join(beside, 'file'))], [true, false])
  }),

  row('links in the directory that point outside lead to no file, and a run cannot link to files outside', async (t, house) => {
    const [ssh = ''] = await withSecrets(house)
    await symlink(ssh, join(house.project, 'out'))
    await symlink('../.x0x', join(house.project, 'ours'))
    const { stdout } = await runSandboxed(
      t,
      house,
      sh(
        `cat out ours/agent.key 2>/dev/null; echo x > out; ln ${ssh} hard 2>/dev/null && echo LINKED; ln /etc/passwd hard2 2>/dev/null && echo LINKED; ln /usr/bin/env hard3 2>/dev/null && echo LINKED; ln out hard4 -L 2>/dev/null && echo LINKED; echo done`,
      ),
    )
    assert.equal(stdout, 'done\n')
    assert.equal(await readFile(ssh, 'utf8'), SECRET)
  }),

  row('a run can read an outside file only through a hard link that already exists in its directory', async (t, house) => {
    const [ssh = ''] = await withSecrets(house)
    await link(ssh, join(house.project, 'mine'))
    // The owner of the file created that link. The sandbox shows the directory as it is.
    assert.equal((await runSandboxed(t, house, ['cat', 'mine'])).stdout, SECRET)
  }),

  row("a run sees some system settings and none of the system's secrets", async (t, house) => {
    const { stdout, stderr } = await runSandboxed(
      t,
      house,
      sh(
        'head -c 5 /etc/passwd; echo; ls /etc/shadow /etc/sudoers /etc/ssh /etc/x0x /etc/ssl/private /root /home /boot /sys /srv /opt /mnt',
      ),
    )
    assert.equal(stdout, 'root:\n')
    assert.equal(stderr.match(/No such file/g)?.length, 12, stderr)
  }),

  row('a run cannot create a device, and the sandbox contains no block device', async (t, house) => {
    const make = 'mknod disk b 8 0 2>&1; mknod mem c 1 1 2>&1; mknod /tmp/tty c 5 0 2>&1; ls /dev'
    const { stdout } = await runSandboxed(t, house, sh(make))
    assert.equal(stdout.match(/Operation not permitted/g)?.length, 3, stdout)
    const devices = stdout.split('\n').filter((line) => /^[a-z]+$/.test(line))
    assert.deepEqual(devices, [
      'core',
      'fd',
      'full',
      'null',
      'ptmx',
      'pts',
      'random',
      'shm',
      'stderr',
      'stdin',
      'stdout',
      'tty',
      'urandom',
      'zero',
    ])
  }),

  row(
    'a run cannot open a device file in its directory',
    async (t, house) => {
      execFileSync('mknod', [join(house.project, 'zero'), 'c', '1', '5'])
      const { stdout } = await runSandboxed(t, house, sh('head -c 1 zero 2>&1'))
      assert.match(stdout, /Permission denied/)
    },
    { skip: isRoot ? null : 'needs root' },
  ),

  row('a run cannot create setuid or setgid files in its directory', async (t, house) => {
    await writeFile(join(house.project, 'tool'), '#!/bin/sh\n')
    await chmod(join(house.project, 'tool'), 0o755)
    const program = `
    chmod(04755, "tool") and print "CHMOD\\n";
    open(my $f, "<", "tool"); chmod(02755, $f) and print "FCHMOD\\n";
    use Fcntl; sysopen(my $g, "made", O_CREAT | O_WRONLY, 04755) and print "OPENED\\n";
    syscall(${process.arch === 'x64' ? 268 : 53}, -100, my $path = "tool", 06755) == 0 and print "FCHMODAT\\n";
    chmod(0700, "tool") or print "refused what is harmless\\n";
    sysopen(my $h, "plain", O_CREAT | O_WRONLY, 0644) or print "refused what is harmless\\n";
    print "done\\n"`
    assert.equal((await runSandboxed(t, house, ['perl', '-e', program])).stdout, 'done\n')
    for (const name of ['tool', 'plain']) assert.equal((await stat(join(house.project, name))).mode & 0o6000, 0)
  }),

  row('temporary files of a sandbox have a size limit and disappear with it', async (t, house) => {
    const first = await runSandboxed(t, house, sh('echo x > /tmp/left; echo x > /dev/shm/left; df -k /tmp | tail -n 1'))
    assert.match(first.stdout, /^tmpfs +524288 /)
    const second = await runSandboxed(t, house, sh('ls -A /tmp/left /dev/shm 2>/dev/null'))
    assert.equal(second.stdout, '/dev/shm:\n')
  }),
]
