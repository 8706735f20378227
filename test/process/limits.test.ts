import assert from 'node:assert/strict'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, readFile } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { getPriority, tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { Confinement } from '../../src/policy/mesh/confinement.ts'
import { findExecutable } from '../../src/policy/executable.ts'
import { spawnPermitted } from '../../src/process/spawn.ts'
import { hasBwrap, isRoot, needs, openCells, openToAll, startConfined } from '../support/containment.ts'
import { permitFor } from '../support/permit.ts'
import { script, startGuardian } from '../support/processes.ts'

const MIB = 1024 * 1024
/** The niceness of a program with this much more niceness than the test, at most 19. */
const niceness = (more: number): number => Math.min(19, getPriority() + more)
const SIGKILL = 9
const SIGXCPU = 24
const hasPrlimit = findExecutable('prlimit').kind === 'found'
const needsPrlimit = hasPrlimit ? {} : { skip: 'install util-linux' }
const needsBoth = isRoot ? needs.bwrap : needs.root

/** Runs a shell script with confinement to its end. */
const runConfined = async (t: TestContext, text: string, confinement: Partial<Confinement>) => {
  const path = await script(t, text)
  // The user of run_as must be able to read the script.
  await chmod(join(path, '..'), 0o755)
  const started = await startConfined(t, [path], { confinement })
  const end = await started.process.ended
  const text_ = (stream: 'stdout' | 'stderr'): string => Buffer.concat(started.output[stream]).toString()
  return { end, stdout: text_('stdout'), stderr: text_('stderr'), containment: started.process.containment }
}

test('max_processes refuses forks above the limit', needs.pids, async (t) => {
  const text = 'n=0; while [ $n -lt 40 ]; do sleep 1000 & n=$((n + 1)); done; echo $n'
  const { end, stdout, stderr } = await runConfined(t, text, { max_processes: 8 })
  assert.match(stderr, /[Cc]annot fork|Resource temporarily unavailable/)
  assert.equal(stdout, '')
  assert.notEqual(end.code, 0)
})

test('max_processes allows exactly its number of processes, including the program itself', needs.pids, async (t) => {
  const text = 'sleep 1000 & a=$!; sleep 1000 & b=$!; sleep 1000 & echo three; kill $a $b $!; exit 0'
  const { end, stdout } = await runConfined(t, text, { max_processes: 4 })
  assert.deepEqual([end.code, stdout], [0, 'three\n'])
})

test('max_processes does not count the processes of bwrap', { ...needs.pids, ...needs.bwrap }, async (t) => {
  const text = 'sleep 1000 & a=$!; sleep 1000 & b=$!; sleep 1000 & echo three; kill $a $b $!; exit 0'
  const { end, stdout, containment } = await runConfined(t, text, { max_processes: 4, no_network: true })
  assert.deepEqual([end.code, stdout, containment], [0, 'three\n', 'pid_namespace'])
})

test('max_memory_bytes kills a program that uses more, and not one that uses less', needs.memory, async (t) => {
  // tail keeps its whole input, because the input has no line end.
  const hog = `head -c ${64 * MIB} /dev/zero | tail -c ${64 * MIB} | wc -c`
  const less = await runConfined(t, hog, { max_memory_bytes: 256 * MIB })
  assert.equal(less.stdout, `${64 * MIB}\n`)
  const more = await runConfined(t, `exec dd if=/dev/zero of=/dev/null count=1 bs=${64 * MIB}`, { max_memory_bytes: 16 * MIB })
  assert.deepEqual([more.end.code, more.end.signal], [null, SIGKILL])
})

test('max_cpu_secs sends SIGXCPU to a program that uses more processor time', needsPrlimit, async (t) => {
  const { end } = await runConfined(t, 'while :; do :; done', { max_cpu_secs: 1 })
  assert.deepEqual([end.code, end.signal], [null, SIGXCPU])
})

test('max_cpu_secs sends SIGKILL to a program that ignores SIGXCPU', needsPrlimit, async (t) => {
  const { end } = await runConfined(t, "trap '' XCPU; while :; do :; done", { max_cpu_secs: 1 })
  assert.deepEqual([end.code, end.signal], [null, SIGKILL])
})

test('max_cpu_secs sets the limit before the program starts', needsPrlimit, async (t) => {
  const { end, stdout } = await runConfined(t, 'ulimit -S -t; ulimit -H -t; exit 6', { max_cpu_secs: 7 })
  assert.deepEqual([end.code, stdout], [6, '7\n8\n'])
})

test('nice adds its value to the niceness of the program and of its child processes', async (t) => {
  assert.deepEqual((await runConfined(t, 'nice; (nice)', { nice: 7 })).stdout, `${niceness(7)}\n${niceness(7)}\n`)
  assert.deepEqual((await runConfined(t, 'nice', { nice: 0 })).stdout, `${niceness(0)}\n`)
})

test('run_as sets user, group and HOME, and removes all supplementary groups', needs.root, async (t) => {
  const { stdout } = await runConfined(t, 'id -un; id -u; id -G; echo $HOME; grep ^Groups: /proc/self/status', { run_as: 'nobody' })
  const [, , , gid, , home] = /^nobody:.*$/m.exec(await readFile('/etc/passwd', 'utf8'))![0].split(':')
  assert.equal(stdout, `nobody\n65534\n${gid}\n${home}\nGroups:\t \n`)
})

test('run_as works together with every other limit', { ...needsBoth, ...needs.pids, ...needs.memory }, async (t) => {
  const all = {
    run_as: 'nobody',
    nice: 3,
    max_cpu_secs: 9,
    max_processes: 12,
    max_memory_bytes: 64 * MIB,
    no_network: true,
    read_only: true,
  }
  const { end, stdout } = await runConfined(t, 'id -un; nice; ulimit -t; exit 4', all)
  assert.deepEqual([end.code, stdout], [4, `nobody\n${niceness(3)}\n9\n`])
})

test('run_as reports a program that its user may not execute as a failure to start, also in a wrapper', needs.root, async (t) => {
  const path = await script(t, 'true')
  for (const [confinement, says] of [
    [{ run_as: 'nobody' }, /EACCES/],
    [{ run_as: 'nobody', nice: 1 }, /nobody may not enter/],
  ] as const) {
    const trees = await openCells(t, 'auto', confinement)
    const result = await spawnPermitted(permitFor([path], { confinement }), { trees, cleanup: startGuardian(t) }, { stdin: false })
    assert.equal(result.kind, 'spawn_failed')
    assert.match(result.detail, says)
  }
})

test('no_network makes a listener on the loopback interface unreachable', needs.bwrap, async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  let connections = 0
  server.on('connection', (socket) => {
    connections += 1
    socket.destroy()
  })
  const { port } = server.address() as AddressInfo
  const connect = `exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/${port} && echo connected'`
  assert.equal((await runConfined(t, connect, {})).stdout, 'connected\n')
  const { end, stdout } = await runConfined(t, connect, { no_network: true })
  assert.deepEqual([end.code, stdout, connections], [1, '', 1])
})

test('read_only prevents writes on the host, even by root and after a remount', needs.bwrap, async (t) => {
  const file = join(tmpdir(), `x0x-read-only-${process.pid}`)
  const text = `touch ${file}; mount -o remount,rw / ; touch ${file}; echo 0 >/proc/sys/kernel/core_uses_pid; echo x >/dev/shm/x0x-read-only`
  const { end } = await runConfined(t, text, { read_only: true })
  assert.deepEqual([end.signal, existsSync(file), existsSync('/dev/shm/x0x-read-only')], [null, false, false])
  const { stdout } = await runConfined(t, 'grep ^CapEff /proc/self/status', { read_only: true })
  assert.equal(stdout, 'CapEff:\t0000000000000000\n')
})

test('a file that is not a program is a failure to start in every wrapper', needsPrlimit, async (t) => {
  const path = await openToAll(t, '/etc/hostname')
  for (const confinement of [{ nice: 1 }, { max_cpu_secs: 1 }, ...(hasBwrap ? [{ read_only: true }] : [])]) {
    const trees = await openCells(t, 'auto', confinement)
    const result = await spawnPermitted(permitFor([path], { confinement }), { trees, cleanup: startGuardian(t) }, { stdin: false })
    assert.equal(result.kind, 'spawn_failed', JSON.stringify(confinement))
    assert.match(result.detail, /neither an ELF file of this machine nor a script/)
  }
})

test('exit codes 126 and 127 of a program stay unchanged in every wrapper', needsPrlimit, async (t) => {
  for (const confinement of [{ nice: 1 }, { max_cpu_secs: 1 }, ...(hasBwrap ? [{ no_network: true }] : [])])
    for (const code of [1, 126, 127]) assert.equal((await runConfined(t, `exit ${code}`, confinement)).end.code, code)
})

test('each limit that cannot be enforced is reported by its key', async (t) => {
  const trees = await openCells(t, 'group')
  const judged = await trees.judge({
    contain: 'required',
    max_memory_bytes: null,
    max_processes: null,
    max_cpu_secs: null,
    nice: null,
    run_as: 'nobody-of-that-name',
    no_network: false,
    read_only: false,
    umask: null,
  })
  assert.deepEqual(
    judged.map(({ key }) => key),
    ['contain', 'run_as'],
  )
})
