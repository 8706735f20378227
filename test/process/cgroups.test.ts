import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import { ownIdentity } from '../../src/base/process-info.ts'
import { endGroup, groupsBelow, killGroup, makeGroup, membersOf, writeControl } from '../../src/process/cgroup-tree.ts'
import { Hierarchy } from '../../src/process/cgroup-tree.ts'
import { CgroupLeaf } from '../../src/process/cgroups.ts'
import { endLeftovers } from '../../src/process/cgroups.ts'
import { findCgroupPlaces } from '../../src/process/cgroup-tree.ts'
import { Cgroups } from '../../src/process/cgroups.ts'
import { readContainmentRecord, writeContainmentRecord } from '../../src/process/process-trees.ts'
import { needs } from '../support/containment.ts'
import { temporaryDirectory } from '../support/processes.ts'

/** A line of mountinfo with number, parent, device, root, mount point, options, separator, type, source and super options. */
const mountLine = (root: string, point: string, type: string, options: string): string =>
  `31 23 0:28 ${root} ${point} rw,relatime shared:9 - ${type} cgroup ${options}\n`

test('cgroup version 2 is found as the only hierarchy, next to version 1, and in a container', () => {
  const pure = findCgroupPlaces({ mountinfo: mountLine('/', '/sys/fs/cgroup', 'cgroup2', 'rw'), cgroup: '0::/system.slice/x0xd.service\n' })
  assert.deepEqual(pure, [{ version: 2, controllers: [], mount: '/sys/fs/cgroup', own: '/sys/fs/cgroup/system.slice/x0xd.service' }])
  const hybrid = findCgroupPlaces({
    mountinfo: mountLine('/', '/sys/fs/cgroup/pids', 'cgroup', 'rw,pids') + mountLine('/', '/sys/fs/cgroup/unified', 'cgroup2', 'rw'),
    cgroup: '8:pids:/a\n1:cpu,cpuacct:/b\n0::/c\n',
  })
  assert.deepEqual(hybrid, [
    { version: 1, controllers: ['pids'], mount: '/sys/fs/cgroup/pids', own: '/sys/fs/cgroup/pids/a' },
    { version: 2, controllers: [], mount: '/sys/fs/cgroup/unified', own: '/sys/fs/cgroup/unified/c' },
  ])
  const inside = { mountinfo: mountLine('/docker/1', '/sys/fs/cgroup', 'cgroup2', 'rw'), cgroup: '0::/docker/1/app\n' }
  assert.deepEqual(findCgroupPlaces(inside)[0]?.own, '/sys/fs/cgroup/app')
})

test('a group outside the mount, or with a path that is unsafe in a shell, is ignored', () => {
  const mountinfo = mountLine('/docker/1', '/sys/fs/cgroup', 'cgroup2', 'rw')
  for (const path of ['/', '/docker/2', '/docker/12', '/../x', '/docker/1/../2', '/docker/1/a b', '/docker/1/$(x)', '/docker/1/*'])
    assert.deepEqual(findCgroupPlaces({ mountinfo, cgroup: `0::${path}\n` }), [], path)
  assert.deepEqual(findCgroupPlaces({ mountinfo: '', cgroup: '' }), [])
  assert.deepEqual(findCgroupPlaces({ mountinfo: 'nonsense\n - \n', cgroup: 'nonsense\n0:\n' }), [])
})

/** A directory that looks like a version 2 group with these controllers. */
const likeGroup = async (t: TestContext, controllers: string): Promise<string> => {
  const own = await temporaryDirectory(t)
  await writeFile(join(own, 'cgroup.controllers'), `${controllers}\n`)
  await writeFile(join(own, 'cgroup.subtree_control'), '')
  return own
}

test('version 2 delegates a limit to the leaf, with room for the threads of the daemon until it leaves', async (t) => {
  const own = await likeGroup(t, 'cpu memory pids')
  const hierarchy = new Hierarchy({ version: 2, controllers: [], mount: own, own }, { parentName: 'x0x-p' })
  assert.equal(hierarchy.enable('pids'), null)
  assert.equal(await readFile(join(own, 'cgroup.subtree_control'), 'utf8'), '+pids')
  assert.equal(await readFile(join(own, 'x0x-p', 'cgroup.subtree_control'), 'utf8'), '+pids')
  const leaf = new CgroupLeaf([hierarchy], { name: 'run-1', limits: { memory: null, processes: 7 } })
  const directory = join(own, 'x0x-p', 'run-1')
  const limit = (): string => readFileSync(join(directory, 'pids.max'), 'utf8')
  // The kernel would count this many processes while the daemon is inside.
  await writeFile(join(directory, 'pids.current'), '11\n')
  leaf.enter(() => assert.equal(limit(), '18'))
  leaf.confine()
  assert.deepEqual([limit(), await readFile(join(own, 'cgroup.threads'), 'utf8'), leaf.isStuck], ['7', '0', false])
})

test('version 2 limits memory without swap and kills the whole leaf together', async (t) => {
  const own = await likeGroup(t, 'memory')
  const hierarchy = new Hierarchy({ version: 2, controllers: [], mount: own, own }, { parentName: 'x0x-p' })
  assert.equal(hierarchy.enable('memory'), null)
  const leaf = new CgroupLeaf([hierarchy], { name: 'run-1', limits: { memory: 4096, processes: null } })
  const directory = join(own, 'x0x-p', 'run-1')
  for (const file of ['memory.max', 'memory.swap.max', 'memory.oom.group']) await writeFile(join(directory, file), 'max')
  leaf.confine()
  const read = async (file: string): Promise<string> => readFile(join(directory, file), 'utf8')
  assert.deepEqual([await read('memory.max'), await read('memory.swap.max'), await read('memory.oom.group')], ['4096', '0', '1'])
})

test('version 2 cannot delegate a controller that the daemon does not have', async (t) => {
  const own = await likeGroup(t, 'cpu')
  const hierarchy = new Hierarchy({ version: 2, controllers: [], mount: own, own }, { parentName: 'x0x-p' })
  assert.match(hierarchy.enable('memory') ?? '', /was not given the memory controller/)
  assert.deepEqual([...hierarchy.limits], [])
})

test('a daemon in its own subgroup creates the leaves next to that subgroup, not below it', async (t) => {
  const mount = await temporaryDirectory(t)
  const own = join(mount, 'x0x-daemon')
  const hierarchy = new Hierarchy({ version: 2, controllers: [], mount, own }, { parentName: 'x0x-p' })
  assert.deepEqual([hierarchy.parent, hierarchy.own], [join(mount, 'x0x-p'), own])
})

test('a leaf that the daemon cannot leave is never killed', async (t) => {
  const own = await temporaryDirectory(t)
  const place = { version: 2, controllers: [], mount: own, own: join(own, 'gone') } as const
  await mkdir(place.own)
  const leaf = new CgroupLeaf([new Hierarchy(place, { parentName: 'x0x-p' })], { name: 'run-1', limits: { memory: null, processes: null } })
  const directory = join(place.own, 'x0x-p', 'run-1')
  leaf.enter(() => undefined)
  assert.equal(leaf.isStuck, false)
  await rm(join(place.own, 'cgroup.threads'))
  // A directory in place of the file makes every write fail.
  await mkdir(join(place.own, 'cgroup.threads'))
  await writeFile(join(directory, 'cgroup.kill'), '')
  leaf.enter(() => undefined)
  assert.equal(leaf.isStuck, true)
  leaf.kill()
  assert.equal(await leaf.end(), false)
  assert.equal(await readFile(join(directory, 'cgroup.kill'), 'utf8'), '')
})

test('the parent of the leaves is created again if it is missing', async (t) => {
  const own = await temporaryDirectory(t)
  const hierarchy = new Hierarchy({ version: 1, controllers: ['pids'], mount: own, own }, { parentName: 'x0x-p' })
  for (const name of ['run-1', 'run-2']) {
    const leaf = new CgroupLeaf([hierarchy], { name, limits: { memory: null, processes: null } })
    assert.equal(existsSync(join(own, 'x0x-p', name)), true)
    // Counting the processes of an empty group removes the group.
    assert.deepEqual([leaf.living(), existsSync(join(own, 'x0x-p', name)), await leaf.end()], [0, false, true])
    hierarchy.close()
  }
  assert.equal(existsSync(join(own, 'x0x-p')), false)
})

test('a leaf that cannot be created leaves no directory behind', async (t) => {
  const [one, other] = [await temporaryDirectory(t), await temporaryDirectory(t)]
  const good = new Hierarchy({ version: 1, controllers: ['pids'], mount: one, own: one }, { parentName: 'x0x-p' })
  const bad = new Hierarchy({ version: 1, controllers: ['memory'], mount: other, own: join(other, 'gone') }, { parentName: 'x0x-p' })
  assert.throws(() => new CgroupLeaf([good, bad], { name: 'run-1', limits: { memory: 1, processes: 1 } }), /ENOENT/)
  assert.equal(existsSync(join(one, 'x0x-p', 'run-1')), false)
})

/** A real group of this process in the pids hierarchy of version 1, which has no `cgroup.kill`. */
const byHand = async (t: TestContext): Promise<{ directory: string; own: string }> => {
  const { own } = findCgroupPlaces().find(({ controllers }) => controllers.includes('pids'))!
  const directory = join(own, `x0x-test-hand-${process.pid}`)
  makeGroup(directory)
  t.after(async () => endGroup(directory))
  return { directory, own }
}
const hasOldPids = findCgroupPlaces().some(({ controllers }) => controllers.includes('pids'))

test(
  'a group without cgroup.kill is killed process by process until it is empty',
  { ...needs.pids, ...(hasOldPids ? {} : { skip: 'no version 1 hierarchy' }) },
  async (t) => {
    const { directory, own } = await byHand(t)
    writeControl(directory, 'cgroup.procs', 0)
    const children = Array.from({ length: 20 }, () => spawn('sleep', ['1000'], { stdio: 'ignore' }))
    writeControl(own, 'cgroup.procs', 0)
    const exits = children.map(async (child) => once(child, 'exit'))
    assert.equal(membersOf(directory).length, 20)
    killGroup(directory)
    for (const exit of exits) assert.equal((await exit)[1], 'SIGKILL')
    assert.equal(await endGroup(directory), true)
    assert.equal(existsSync(directory), false)
  },
)

test('the containment record is read as written, and an invalid record is ignored', async (t) => {
  const path = join(await temporaryDirectory(t), 'containment.json')
  assert.equal(await readContainmentRecord(path), null)
  const record = { in_force: 'group', stronger: [{ containment: 'cgroup', why: 'x' }], parents: ['/sys/fs/cgroup/x'] } as const
  await writeContainmentRecord(path, record)
  assert.deepEqual(await readContainmentRecord(path), record)
  for (const text of [
    '',
    'null',
    '[]',
    '{"parents":[],"stronger":[]}',
    ...['{"parents":[7],"stronger":[]', '{"parents":[]', '{"parents":[],"stronger":["x"]'].map((start) => `${start},"in_force":"group"}`),
  ]) {
    await writeFile(path, text)
    assert.equal(await readContainmentRecord(path), null, text)
  }
})

test('a start removes leftover groups with its own name pattern, and no other groups', needs.cgroup, async (t) => {
  const [place] = findCgroupPlaces().filter(({ version }) => version === 2)
  const [base, digits] = [join(place!.own, `x0x-test-beside-${process.pid}`), '0123456789abcdef']
  const session = join(base, 'session')
  const ours = [join(session, `x0x-p-${digits}`), join(base, 'another', `x0x-p-${digits}`)]
  const foreign = [
    join(session, 'x0x-p'),
    join(session, `x0x-p-${digits}0`),
    join(session, `x0x-q-${digits}`),
    join(session, `other-x0x-p-${digits}`),
    join(session, 'deep', 'er', `x0x-p-${digits}`),
  ]
  const around = join(session, `x0x-p-${digits.replace('0', '1')}`)
  for (const path of [...ours, ...foreign, around]) await mkdir(path, { recursive: true })
  t.after(async () => {
    for (const below of groupsBelow(base))
      for (const one of groupsBelow(below)) await endGroup(join(one, 'er', `x0x-p-${digits}`)).then(() => endGroup(join(one, 'er')))
    for (const below of groupsBelow(base)) await endGroup(below)
    await endGroup(base)
  })
  const outside = join(await temporaryDirectory(t), 'groups', `x0x-p-${digits}`)
  await mkdir(outside, { recursive: true })
  const places = [place!, { ...place!, own: join(around, 'ourselves') }]
  assert.deepEqual(await endLeftovers([join(session, 'x0x-p-new'), join(outside, '..', 'x0x-p-new')], { prefix: 'x0x-p' }, places), [])
  assert.deepEqual(ours.map(existsSync), [false, false])
  assert.deepEqual(
    [...foreign, around, outside].filter((path) => !existsSync(path)),
    [],
  )
})

test('only groups of dead processes in the same PID namespace are removed as leftovers', needs.cgroup, async (t) => {
  const [place] = findCgroupPlaces().filter(({ version }) => version === 2)
  const { pid, started, namespace } = ownIdentity()
  const child = spawn('true', [], { stdio: 'ignore' })
  const [gone] = [child.pid, await once(child, 'exit')]
  const digits = '0123456789abcdef'
  const groups = [`${gone}-77-${namespace}`, `${pid}-1-${namespace}`, `${pid}-${started}-${namespace}`, `${gone}-77-1`].map((of) =>
    join(place!.own, `x0x-of-${of}-${digits}`),
  )
  for (const group of [...groups, `${groups[0]}0`]) {
    makeGroup(group)
    t.after(async () => endGroup(group))
  }
  assert.deepEqual(await endLeftovers([join(place!.own, 'x0x-of-ours')], { prefix: 'x0x-of-ours' }), [])
  assert.deepEqual(groups.map(existsSync), [false, false, true, true])
  assert.ok(existsSync(`${groups[0]}0`))
})

test('an unavailable leaf is reported with the missing hierarchy', async () => {
  const none = new Cgroups({ parentName: 'x0x-p', places: [] })
  assert.equal(await none.holdingProblem(), 'no cgroup version 2 is mounted')
  assert.equal(await none.limitProblem('memory'), 'no memory controller is mounted')
  assert.throws(() => none.makeLeaf({ hold: true, limits: { memory: null, processes: null } }), /no control group/)
  assert.throws(() => none.makeLeaf({ hold: false, limits: { memory: 1, processes: null } }), /no control group/)
  assert.deepEqual(none.parents, [])
  none.close()
})

for (const whole of [false, true])
  test(
    `the daemon enters a leaf as ${whole ? 'a whole process' : 'one thread'}, and a child starts in it and dies with it`,
    needs.cgroup,
    async (t) => {
      const place = findCgroupPlaces().find(({ version }) => version === 2)!
      const hierarchy = new Hierarchy(place, { parentName: `x0x-test-door-${whole}-${process.pid}`, whole })
      t.after(() => {
        hierarchy.close()
        assert.equal(existsSync(hierarchy.parent), false)
      })
      const before = await readFile('/proc/self/cgroup', 'utf8')
      const leaf = new CgroupLeaf([hierarchy], { name: 'run-1', limits: { memory: null, processes: null } })
      assert.equal(hierarchy.entryFile, whole ? 'cgroup.procs' : 'cgroup.threads')
      // A shell that keeps forking while it is killed, far below any limit of the host.
      const forks = 'for i in 1 2 3 4 5 6 7 8; do (while :; do sleep 0.01; done) & done; wait'
      const child = leaf.enter(() => spawn('/bin/sh', ['-c', forks], { stdio: 'ignore', detached: true }))
      assert.equal(await readFile('/proc/self/cgroup', 'utf8'), before)
      const directory = join(hierarchy.parent, 'run-1')
      while (membersOf(directory).length < 9) await sleep(5)
      const exit = once(child, 'exit')
      leaf.kill()
      assert.equal((await exit)[1], 'SIGKILL')
      assert.equal(await leaf.end(), true)
      assert.equal(existsSync(directory), false)
    },
  )

for (const [where, below] of [
  ['the group that was delegated to it', ''],
  ['the subgroup that a unit creates for its daemon', '/x0x-daemon'],
] as const)
  test(`a daemon in ${where} keeps its runs in sibling leaves and leaves no group behind`, needs.cgroup, async (t) => {
    const place = findCgroupPlaces().find(({ version }) => version === 2)!
    const base = join(place.own, `x0x-test-unit-${process.pid}`)
    for (const directory of new Set([base, base + below])) makeGroup(directory)
    t.after(async () => assert.equal(await endGroup(base), true))
    const program = fileURLToPath(new URL('../support/cell-program.ts', import.meta.url))
    const enter = 'echo 0 >"$1/cgroup.procs" && exec "$2" "$3"'
    const child = spawn('/bin/sh', ['-c', enter, 'sh', base + below, process.execPath, program], { stdio: ['ignore', 'pipe', 'inherit'] })
    let text = ''
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()))
    assert.equal((await once(child, 'close'))[0], 0)
    assert.match(text, new RegExp(`^0::.*/x0x-test-unit-${process.pid}/x0x-of-[0-9-]+-[0-9a-f]+/run-\\d+$`, 'm'))
    assert.match(text, /^cgroup 0$/m)
    assert.deepEqual(groupsBelow(base), below === '' ? [] : [base + below])
  })
