import assert from 'node:assert/strict'
import { execFile, execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { chmod, chown, copyFile, link, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import { attempt, isAppError } from '../../src/base/errors.ts'
import { ImageStore } from '../../src/process/sandbox/images.ts'
import { IMAGE_LEFT_MS } from '../../src/protocol/limits/daemon.ts'
import { isRoot } from '../../test/support/containment.ts'
import { mcpPlace, startMcp } from '../../test/support/mcp-server.ts'
import { NOBODY } from '../../test/support/other-user.ts'
import { needsPodman, podmanPlace, withPodman } from '../../test/support/podman-image.ts'
import { household, runSandboxed, startSandboxed } from '../../test/support/sandboxed.ts'

// A sandbox with the files of a container image. The container engine provides the files and starts no container.

const ROOT = join(import.meta.dirname, '../..')
const ORDINARY = fileURLToPath(new URL('../../test/support/ordinary-podman.ts', import.meta.url))
const DOCKER_IMAGES = fileURLToPath(new URL('../../test/support/docker-images.ts', import.meta.url))
/** These tests need another user, or a mount namespace that changes paths of this host for the test only. */
const needsOther = { skip: needsPodman.skip || !isRoot }

const sh = (text: string): string[] => ['sh', '-c', text]

const unavailable = (words: RegExp) => (error: unknown) =>
  isAppError(error, 'sandbox_unavailable') && error instanceof Error && words.test(error.message)

test(withPodman('a run has the files of the image and its own directory, and no other files of this host'), needsPodman, async (t) => {
  const podman = await podmanPlace(t)
  await podman.import(async (root) => {
    await symlink('/etc/shadow', join(root, 'etc/link'))
    await copyFile('/bin/busybox', join(root, 'bin/owner'))
    await chmod(join(root, 'bin/owner'), 0o4755)
  })
  const image = await new ImageStore().image(podman.settings, podman.directory, true)
  assert.deepEqual(image.env, { PATH: '/bin', FROM_IMAGE: 'yes' })
  assert.equal((await stat(join(image.root, 'bin/owner'))).mode & 0o7000, 0)
  assert.equal((await stat(podman.directory)).mode & 0o777, 0o700)
  const house = await household(t)
  await writeFile(join(house.home, '.ssh', 'id'), 'secret')
  const options = { image, settings: podman.settings }
  const words = `cat /etc/of-image; echo $FROM_IMAGE; pwd; echo made > file; ls -A /usr /etc ${house.home}; cat /etc/link ${house.home}/.ssh/id`
  const seen = await runSandboxed(t, house, sh(`${words} ${image.root}/etc/of-image; echo end`), options)
  assert.equal(seen.stdout, `of the image\nyes\n${house.project}\n/etc:\nlink\nof-image\n\n${house.home}:\nproject\nend\n`, seen.stderr)
  assert.equal(existsSync(join(house.project, 'file')), true)

  const tries = ['/', '/bin', '/etc', '/etc/of-image', '/home', '/home/data', '/proc/sys/kernel/hostname'].map(
    (place) => `(echo x > ${place}; echo x > ${place}/x0x-escape; mkdir ${place}/x0x-dir) 2>/dev/null && echo WROTE ${place}`,
  )
  const wrote = await runSandboxed(
    t,
    house,
    sh(`${tries.join('; ')}; rm -rf /bin/ls /etc/of-image; ls -d /proc/[0-9]*; cat /proc/net/dev`),
    options,
  )
  assert.doesNotMatch(wrote.stdout, /WROTE|eth|ens|veth/)
  assert.ok((wrote.stdout.match(/^\/proc\/\d+$/gm) ?? []).length <= 4, wrote.stdout)
  assert.equal(existsSync(join(image.root, 'etc/of-image')), true)

  // A program must be in the image or in the directory. Programs of this host are not available.
  for (const name of ['perl', '/usr/bin/env', './none'])
    await assert.rejects(runSandboxed(t, house, [name], options), /in the image localhost\/x0x-test:1/, name)
  await writeFile(join(house.project, 'own'), '#!/bin/sh\necho own\n')
  await chmod(join(house.project, 'own'), 0o755)
  assert.equal((await runSandboxed(t, house, ['./own'], options)).stdout, 'own\n')
  await writeFile(join(house.project, 'foreign'), '#!/usr/bin/perl\n')
  await chmod(join(house.project, 'foreign'), 0o755)
  const foreign = await startSandboxed(t, house, ['./foreign'], options)
  assert.match('failed' in foreign ? foreign.failed : 'it ran', /names \/usr\/bin\/perl, which the sandbox does not show/)
  const shown = await startSandboxed(t, house, ['ls'], { ...options, terminal: { cols: 80, rows: 24 } })
  assert.match('failed' in shown ? shown.failed : 'it ran', /has no terminal/)

  // A program of the image that is replaced after the permit does not run.
  const replaced = await startSandboxed(t, house, ['owner'], {
    ...options,
    meanwhile: async () => {
      await copyFile('/bin/busybox', join(image.root, 'bin/new'))
      execFileSync('mv', [join(image.root, 'bin/new'), join(image.root, 'bin/owner')])
    },
  })
  assert.match('failed' in replaced ? replaced.failed : 'it ran', /was replaced after it was permitted/)
})

test(withPodman('a malicious image cannot write to this host, neither when it is unpacked nor during a run'), needsPodman, async (t) => {
  const podman = await podmanPlace(t)
  const victim = await mkdtemp(join(tmpdir(), 'x0x-victim-'))
  t.after(() => rm(victim, { recursive: true, force: true }))
  await podman.import(
    async (root) => {
      // While bwrap sets up the sandbox, the root of the host is mounted at /oldroot.
      for (const name of ['var', 'tmp', 'run']) await symlink(`/oldroot${victim}`, join(root, name))
      for (const name of ['proc', 'sys', 'dev']) await writeFile(join(root, name), 'a file')
      await symlink('../../../../..', join(root, 'etc/up'))
      await link(join(root, 'etc/of-image'), join(root, 'etc/again'))
    },
    ['ENV LD_PRELOAD=/etc/of-image', 'ENV IFS=x'],
  )
  const image = await new ImageStore().image(podman.settings, podman.directory, true)
  const house = await household(t)
  const words = 'echo x > /var/tmp/x; echo y > /tmp/y; ls -A /etc/up/etc; cat /proc/self/comm; echo z > /var/z || echo end'
  const seen = await runSandboxed(t, house, sh(words), { image, settings: podman.settings })
  assert.equal(seen.stdout, 'again\nof-image\nup\ncat\nend\n', seen.stderr)
  assert.deepEqual(await readdir(victim), [])
})

test(withPodman('an AI agent runs its commands in the configured image, and is refused without that image'), needsPodman, async (t) => {
  const podman = await podmanPlace(t)
  await podman.import(async () => undefined)
  const { image } = podman.settings
  const place = await mcpPlace(t, { mcp: `\n[tools.exec]\nask = "off"\n[tools.exec.sandbox]\nengine = "podman"\nimage = "${image}"\n` })
  const server = await startMcp(t, {}, { place, env: { HOME: place.dir } })
  const text = 'cat /etc/of-image; echo $FROM_IMAGE; pwd; ls -A /usr; cat /proc/net/dev /proc/self/status; echo kept > kept'
  const started = (words: string) => server.run('exec_capture', { command: 'sh', args: ['-c', words] })
  const [ran, other] = await Promise.all([started(text), started('pwd')])
  assert.equal(other.stdout, `${place.root}\n`, JSON.stringify(other))
  assert.ok(ran.stdout?.startsWith(`of the image\nyes\n${place.root}\n`), JSON.stringify(ran))
  assert.doesNotMatch(ran.stdout ?? '', /eth|ens|veth/)
  // The same restrictions as with programs of this host: no capabilities, no new privileges, and the filter for system calls.
  for (const line of [/^CapEff:\t0+$/m, /^CapBnd:\t0+$/m, /^NoNewPrivs:\t1$/m, /^Seccomp:\t2$/m]) assert.match(ran.stdout ?? '', line)
  assert.equal(ran.ran_on?.host, 'sandbox')
  assert.equal(existsSync(join(place.root, 'kept')), true)
  assert.equal((await readdir(join(place.dir, '.x0x-images'))).length, 1)
  execFileSync('podman', ['rmi', image ?? ''], { stdio: 'ignore' })
  const gone = await server.run('exec_capture', { command: 'sh', args: ['-c', 'echo ran > gone'] })
  assert.equal(gone.denial_reason, 'sandbox_unavailable', JSON.stringify(gone))
  assert.match(JSON.stringify(gone), /podman pull localhost/)
  assert.equal(existsSync(join(place.root, 'gone')), false)
})

test(withPodman('leftovers of a crash and the least recently used of too many images are removed'), needsPodman, async (t) => {
  const podman = await podmanPlace(t)
  await podman.import(async (root) => {
    // The image of Fedora has directories that their owner may not write to.
    await mkdir(join(root, 'usr/bin'), { recursive: true })
    await chmod(join(root, 'usr'), 0o555)
  })
  let before = 0
  for (const name of ['podman-1', 'podman-2', 'podman-3', 'podman-4', 'new-crash1']) {
    const path = join(podman.directory, name)
    await mkdir(path, { recursive: true })
    // Repeats until the change time is later than that of the one before, because the clock advances in ticks.
    while ((await stat(path)).ctimeMs <= before) await utimes(path, 0, 0)
    before = (await stat(path)).ctimeMs
  }
  execFileSync('podman', ['create', '--name', 'x0x-new-crash1', podman.settings.image ?? '', '/none'])
  const said: string[] = []
  const store = new ImageStore({ info: (_fields: object | string, text?: string) => void said.push(String(text)) })
  const now = Date.now()
  t.mock.method(Date, 'now', () => now + IMAGE_LEFT_MS + 60_000)
  const image = await store.image(podman.settings, podman.directory, true)
  assert.deepEqual(await readdir(podman.directory), ['podman-2', 'podman-3', 'podman-4', `podman-${image.id}`].sort())
  assert.equal(execFileSync('podman', ['ps', '--all', '--quiet']).toString(), '')
  await store.image(podman.settings, podman.directory, true)
  assert.deepEqual(said, ['the files of an image are being unpacked', 'the files of an image are unpacked'])
})

test(
  withPodman('an image is unpacked once, and again if its tag means another image, and no container is left'),
  needsPodman,
  async (t) => {
    const podman = await podmanPlace(t)
    const store = new ImageStore()
    const get = async () => store.image(podman.settings, podman.directory, true)
    await assert.rejects(get(), unavailable(/podman has no image localhost\/x0x-test:1 .*: podman pull localhost\/x0x-test:1$/s))
    await podman.import(async (root) => writeFile(join(root, 'one'), ''))
    const [first, again] = await Promise.all([get(), get()])
    assert.equal(first.root, again.root)
    assert.deepEqual(await readdir(podman.directory), [`podman-${first.id}`])
    await podman.import(async (root) => writeFile(join(root, 'two'), ''))
    const second = await get()
    assert.notEqual(second.id, first.id)
    assert.deepEqual([existsSync(join(second.root, 'one')), existsSync(join(second.root, 'two'))], [false, true])
    assert.equal(execFileSync('podman', ['ps', '--all', '--quiet']).toString(), '')

    await podman.import(async (root) => execFileSync('mknod', [join(root, 'disk'), 'b', '8', '0']))
    await assert.rejects(get(), unavailable(/could not be unpacked: .*mknod/s))
    assert.equal((await readdir(podman.directory)).length, 2)
    await assert.rejects(
      store.image({ ...podman.settings, engine: 'docker' }, podman.directory, true),
      unavailable(
        /docker (cannot be had \(.*\): install it|has no image .*: docker pull|does not answer \(.*\): start it|does not let this user in)/,
      ),
    )
  },
)

test(withPodman('podman of an ordinary user provides the same files as podman of root, and leaves no process'), needsOther, async (t) => {
  const base = await mkdtemp(join(tmpdir(), 'x0x-ordinary-'))
  t.after(() => rm(base, { recursive: true, force: true }))
  await chmod(base, 0o755)
  const [own, repository] = [join(base, 'own'), join(base, 'repository')]
  for (const path of [own, repository]) await mkdir(path)
  await chown(own, NOBODY.uid, NOBODY.gid)
  await chmod(own, 0o700)
  // Other users may be unable to enter the parent directory, so the repository is mounted at another path.
  const seen = (path: string): string => (path.startsWith(`${ROOT}/`) ? join(repository, path.slice(ROOT.length)) : path)
  const user = [
    'setpriv',
    `--reuid=${NOBODY.uid}`,
    `--regid=${NOBODY.gid}`,
    '--clear-groups',
    'env',
    '-i',
    'PATH=/usr/sbin:/usr/bin:/sbin:/bin',
  ]
  const program = [seen(process.execPath), seen(ORDINARY)]
  const words = ['-m', 'sh', '-c', 'mount --bind "$1" "$2"; shift 2; cd /; exec "$@"', 'sh', ROOT, repository]
  const { stdout } = await promisify(execFile)('unshare', [...words, ...user, `HOME=${own}`, `TMPDIR=${own}`, ...program])
  const told = JSON.parse(stdout) as { readonly none?: string; readonly uid: number; readonly stdout: string; readonly stderr: string }
  if (told.none !== undefined) return t.skip(told.none)
  assert.deepEqual([told.uid, told.stdout], [NOBODY.uid, 'of the image\nyes\nmade\nof-image\n'])
  assert.match(told.stderr, /Read-only file system/)
  assert.deepEqual(
    (await readdir(own)).filter((name) => !name.startsWith('.')),
    [],
  )
  const of = (await readdir('/proc'))
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => attempt(() => readFileSync(`/proc/${pid}/environ`, 'latin1')) ?? '')
  assert.deepEqual(
    of.filter((environment) => environment.includes(`HOME=${own}\0`)),
    [],
  )
})

/** Uses a simulated docker client, because tests have no Docker daemon. The error of a real client without a daemon is tested above. */
test(withPodman('docker provides only the files of an image, and its errors name a remedy'), needsOther, async (t) => {
  const state = await mkdtemp(join(tmpdir(), 'x0x-docker-'))
  t.after(() => rm(state, { recursive: true, force: true }))
  const [root, images] = [join(state, 'root'), join(state, 'images')]
  for (const path of ['bin', 'etc', 'dev/pts', 'dev/shm', 'proc', 'sys']) await mkdir(join(root, path), { recursive: true })
  for (const path of [images, join(state, 'containers')]) await mkdir(path)
  await copyFile('/bin/busybox', join(root, 'bin/busybox'))
  for (const name of ['sh', 'cat', 'ls', 'wc']) await symlink('/bin/busybox', join(root, 'bin', name))
  // Files that Docker adds to a container that was never started.
  for (const name of ['.dockerenv', 'dev/console', 'etc/hosts', 'etc/hostname', 'etc/resolv.conf']) await writeFile(join(root, name), '')
  await symlink('/proc/mounts', join(root, 'etc/mtab'))
  await writeFile(join(root, 'etc/of-image'), 'of the image\n')
  execFileSync('tar', ['-C', root, '-cf', join(state, 'files.tar'), '.'])
  const id = 'd'.repeat(64)
  const inspect = [
    {
      Id: `sha256:${id}`,
      RepoTags: ['debian:12'],
      Config: { Env: ['PATH=/bin', 'OF=docker'], Cmd: ['bash'], Entrypoint: null },
      Os: 'linux',
    },
  ]
  await writeFile(join(state, 'inspect.json'), JSON.stringify(inspect))
  const ask = async (...names: readonly string[]) => {
    const place = 'mount -t tmpfs tmpfs /usr/local/sbin; cp "$1" /usr/local/sbin/docker; chmod 755 /usr/local/sbin/docker; shift; exec "$@"'
    const words = ['-m', 'sh', '-c', place, 'sh', join(ROOT, 'test/support/docker-28.sh'), process.execPath, DOCKER_IMAGES]
    const { stdout } = await promisify(execFile)('unshare', [...words, images, ...names], { env: { ...process.env, DOCKER_STATE: state } })
    const asked = (await readFile(join(state, 'asked'), 'utf8')).trim().split('\n')
    await rm(join(state, 'asked'))
    assert.deepEqual(await readdir(join(state, 'containers')), [])
    return { ...(JSON.parse(stdout) as { readonly said: readonly unknown[]; readonly left: readonly string[] }), asked }
  }
  await writeFile(join(state, 'breaks'), '')
  const half = await ask('half:1')
  assert.match(String(half.said[0]), /half:1 could not be unpacked: .*(unexpected EOF|Unexpected EOF)/s)
  assert.deepEqual(half.left, [])
  await rm(join(state, 'breaks'))
  const { said, left, asked } = await ask('debian:12', 'gone:1', 'stopped:1', 'closed:1', 'nameless:1')
  const stdout = 'of the image\ndocker\nbin\ndev\netc\nproc\nrun\ntmp\nvar\n14\n'
  assert.deepEqual([said[0], left], [{ id, env: { PATH: '/bin', OF: 'docker' }, stdout }, [`docker-${id}`]])
  for (const [at, text] of [
    /docker has no image gone:1 \(.*\): docker pull gone:1$/,
    /docker does not answer \(Cannot connect .*\): start it \(systemctl start docker\)/,
    /docker does not let this user in \(permission denied .*\): run it rootless/,
    /docker does not say what nameless:1 is \(the engine reports no ID of it\): look with docker image inspect nameless:1$/,
  ].entries())
    assert.match(String(said[at + 1]), text)
  assert.deepEqual(
    asked.filter((line) => !line.startsWith('image inspect')).map((line) => line.replaceAll(/x0x-new-\w+/g, 'NEW')),
    [`create --pull never --name NEW ${id} /x0x-never-started`, 'export NEW', 'rm NEW'],
  )
})
