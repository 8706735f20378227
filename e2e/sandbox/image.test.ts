import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, copyFile, link, mkdir, mkdtemp, readdir, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { ImageStore } from '../../src/process/sandbox/image-store.ts'
import { IMAGE_LEFT_MS } from '../../src/protocol/sandbox-limits.ts'
import { mcpPlace, startMcp } from '../../test/support/mcp-server.ts'
import { needsPodman, podmanPlace, withPodman } from '../../test/support/podman-image.ts'
import { household, runSandboxed, startSandboxed } from '../../test/support/sandboxed.ts'

// A sandbox with the files of a container's image: an engine is asked for them, and starts nothing.

const sh = (text: string): string[] => ['sh', '-c', text]

const unavailable = (words: RegExp) => (error: unknown) =>
  isAppError(error, 'sandbox_unavailable') && error instanceof Error && words.test(error.message)

test(withPodman('a run has the files of the image, its own directory, and nothing of this host'), needsPodman, async (t) => {
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

  // A program is one of the image's, or of the directory; none of this host's.
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
  assert.match('failed' in shown ? shown.failed : 'it ran', /there is no terminal/)

  // What stands in the image's place later is not what was permitted.
  const replaced = await startSandboxed(t, house, ['owner'], {
    ...options,
    meanwhile: async () => {
      await copyFile('/bin/busybox', join(image.root, 'bin/new'))
      execFileSync('mv', [join(image.root, 'bin/new'), join(image.root, 'bin/owner')])
    },
  })
  assert.match('failed' in replaced ? replaced.failed : 'it ran', /was replaced after it was permitted/)
})

test(withPodman('an image that was made to do harm does none to this host, in its making or in a run'), needsPodman, async (t) => {
  const podman = await podmanPlace(t)
  const victim = await mkdtemp(join(tmpdir(), 'x0x-victim-'))
  t.after(() => rm(victim, { recursive: true, force: true }))
  await podman.import(
    async (root) => {
      // While bwrap makes the sandbox, the host's root stands there.
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

test(withPodman('from a configuration to a command: an agent’s runs in the image, and is refused without it'), needsPodman, async (t) => {
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
  // As on this host's programs: no capability, no new rights, and the filter.
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

test(withPodman('what a crash has left of an image goes, and so does the least lately used of too many'), needsPodman, async (t) => {
  const podman = await podmanPlace(t)
  await podman.import(async (root) => {
    // As Fedora's: directories that their owner may not write.
    await mkdir(join(root, 'usr/bin'), { recursive: true })
    await chmod(join(root, 'usr'), 0o555)
  })
  let before = 0
  for (const name of ['podman-1', 'podman-2', 'podman-3', 'podman-4', 'new-crash1']) {
    const path = join(podman.directory, name)
    await mkdir(path, { recursive: true })
    // Each was used after the one before it, by a clock that goes in ticks.
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

test(withPodman('an image is unpacked once, anew where its tag means another, and no container is left'), needsPodman, async (t) => {
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
    unavailable(/docker (cannot be had|has no image)/),
  )
})
