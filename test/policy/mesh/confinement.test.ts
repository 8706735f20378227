import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { findAccount } from '../../../src/policy/account.ts'
import { authorize } from '../../../src/policy/mesh/authorize.ts'
import { checkAclFile } from '../../../src/policy/mesh/check-acl.ts'
import {
  CONFINEMENT_KEYS,
  UNCONFINED,
  type Confinement,
  MIN_MEMORY_BYTES,
  MAX_PROCESSES,
  MAX_CPU_SECS,
} from '../../../src/policy/mesh/confinement.ts'
import { scrubbedEnvironment } from '../../../src/policy/environment.ts'
import { explain, explanationText } from '../../../src/policy/mesh/explain.ts'
import { loadAcl } from '../../../src/policy/mesh/load-acl.ts'
import { Slots } from '../../../src/policy/slots.ts'
import { ALICE, aclOf, aclText, alice, asking, entryText, LAPTOP, readText } from '../../support/acl-text.ts'

/** A file whose only entry has the lines `entry`, and whose `[exec]` has the lines `exec`. */
const withLines = (entry: string, exec = ''): string =>
  aclText([entryText([['true']]).replace('[[exec.allow.commands]]', `${entry}\n$&`)], exec)

const confinementOf = (entry: string, exec = ''): Confinement => aclOf(withLines(entry, exec)).allow[0]!.confinement

const fileWith = async (t: TestContext, text: string): Promise<string> => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-confinement-'))
  t.after(() => rm(dir, { recursive: true }))
  const path = join(dir, 'file')
  await writeFile(path, text, { mode: 0o600 })
  return path
}

test('an entry without these keys is not confined', () => {
  assert.deepEqual(confinementOf(''), UNCONFINED)
})

test('every key is read, also at both ends of its range', () => {
  assert.deepEqual(
    confinementOf(
      `contain = "required"\nmax_memory_bytes = ${MIN_MEMORY_BYTES}\nmax_processes = 1\nmax_cpu_secs = 1\nnice = 0\nrun_as = "nobody"\nno_network = true\nread_only = true\numask = "0027"`,
    ),
    {
      contain: 'required',
      max_memory_bytes: MIN_MEMORY_BYTES,
      max_processes: 1,
      max_cpu_secs: 1,
      nice: 0,
      run_as: 'nobody',
      no_network: true,
      read_only: true,
      umask: '027',
    },
  )
  const most = confinementOf(
    `max_processes = ${MAX_PROCESSES}\nmax_cpu_secs = ${MAX_CPU_SECS}\nnice = 19\nmax_memory_bytes = ${Number.MAX_SAFE_INTEGER}`,
  )
  assert.deepEqual(
    [most.max_processes, most.max_cpu_secs, most.nice, most.max_memory_bytes],
    [MAX_PROCESSES, MAX_CPU_SECS, 19, Number.MAX_SAFE_INTEGER],
  )
})

test('every invalid value is refused with its place', () => {
  const bad: [keyof Confinement, string[]][] = [
    ['contain', ['"strong"', '""', 'true', '1', '["required"]']],
    ['max_memory_bytes', ['0', '-1', String(MIN_MEMORY_BYTES - 1), '1048576.0', '"1048576"', 'true', '9007199254740992']],
    ['max_processes', ['0', '-1', '1.0', '"8"', String(MAX_PROCESSES + 1)]],
    ['max_cpu_secs', ['0', '-1', '1.5', '"1"', String(MAX_CPU_SECS + 1)]],
    ['nice', ['-1', '20', '0.0', '"5"']],
    ['run_as', ['""', '0', '65534', '"a b"', '"../x"', '"a:b"', '"-x"', 'true', `"${'a'.repeat(33)}"`]],
    ['no_network', ['"true"', '1', '[]']],
    ['read_only', ['"yes"', '0', '{}']],
    ['umask', ['""', '"22"', '"1022"', '"00022"', '"028"', '"u=rwx"', '"0o22"', '" 022"', '22', '0o22', 'true']],
  ]
  assert.deepEqual(bad.map(([key]) => key).toSorted(), CONFINEMENT_KEYS.toSorted())
  for (const [key, values] of bad)
    for (const value of values) {
      const { problems } = readText(withLines(`${key} = ${value}`))
      assert.equal(problems.length, 1, `${key} = ${value}: ${problems.join('\n')}`)
      assert.match(problems[0]!, new RegExp(`^acl\\.toml:\\d+: exec\\.allow\\[0\\]\\.${key}: must be `))
    }
})

test('the limits belong to an entry, not to [exec] or a command', () => {
  for (const key of CONFINEMENT_KEYS.filter((key) => key !== 'contain'))
    assert.match(readText(withLines('', `${key} = 1`)).problems[0]!, /unknown key/, key)
  assert.match(readText(`${withLines('')}nice = 3\n`).problems[0]!, /commands\[0\]\.nice: unknown key/)
  assert.match(readText(withLines('max_memory = 3')).problems[0]!, /unknown key/)
})

test('contain of [exec] applies to every entry, and an entry may only tighten it', () => {
  assert.equal(confinementOf('', 'contain = "required"').contain, 'required')
  assert.equal(confinementOf('contain = "required"').contain, 'required')
  assert.equal(confinementOf('contain = "best_effort"', 'contain = "best_effort"').contain, 'best_effort')
  const { problems } = readText(withLines('contain = "best_effort"', 'contain = "required"'))
  assert.match(problems.join('\n'), /exec\.allow\[0\]\.contain: is "required" in \[exec\]; an entry may only tighten it/)
  assert.match(readText(withLines('', 'contain = "maybe"')).problems[0]!, /exec\.contain: must be/)
})

test('the permit carries the confinement of the entry, frozen', () => {
  const acl = aclOf(withLines('nice = 3\nmax_processes = 8'))
  const verdict = authorize(asking(['true']), alice, { acl, slots: new Slots(acl.caps), env: scrubbedEnvironment() })
  assert.ok(verdict.kind === 'permit')
  const { confinement, account } = verdict.permit
  assert.deepEqual([confinement, account], [{ ...UNCONFINED, nice: 3, max_processes: 8 }, null])
  assert.throws(() => Object.assign(confinement, { nice: 0 }), TypeError)
})

test('each permit looks up run_as and sets HOME, and a missing user or root is a denial', () => {
  const decide = (user: string) => {
    const acl = aclOf(withLines(`run_as = "${user}"`))
    return authorize(asking(['true']), alice, { acl, slots: new Slots(acl.caps), env: scrubbedEnvironment('/home/x0x') })
  }
  const verdict = decide('nobody')
  assert.ok(verdict.kind === 'permit')
  const { account, env } = verdict.permit
  assert.equal(account?.name, 'nobody')
  assert.deepEqual([env['HOME'], Object.keys(env).length], [account.home, 4])
  assert.throws(() => Object.assign(account, { uid: 0 }), TypeError)
  for (const user of ['x0x-no-such-user', 'root']) {
    const denied = decide(user)
    assert.ok(denied.kind === 'denied')
    assert.deepEqual([denied.reason, denied.gate], ['spawn_failed', 'executable'])
    assert.match(denied.detail, /^run_as: /)
  }
})

test('the file of users gives found, missing, privileged and malformed users the right result', async (t) => {
  const path = await fileWith(
    t,
    'root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/root:/bin/sh\nann:x:1000:100:Ann:/home/ann:/bin/sh\nshort:x:1:1\nword:x:one:1::/:/bin/sh\nhigh:x:4294967295:1::/:/bin/sh\nhomeless:x:7:7:::\nbelow:x:-1:1::/:\nops:x:1001:0::/home/ops:/bin/sh\n',
  )
  assert.deepEqual(findAccount('ann', path), { kind: 'found', account: { name: 'ann', uid: 1000, gid: 100, home: '/home/ann' } })
  assert.deepEqual(findAccount('homeless', path), { kind: 'found', account: { name: 'homeless', uid: 7, gid: 7, home: '/' } })
  for (const name of ['root', 'toor', 'short', 'word', 'high', 'below', 'ops', 'nobody', ''])
    assert.equal(findAccount(name, path).kind, 'refused', name)
  assert.equal(findAccount('ann', `${path}.gone`).kind, 'refused')
})

test('explain shows the confinement of a run', () => {
  const acl = aclOf(withLines('nice = 3\nno_network = true'))
  const answer = explain({ acl, agent_id: ALICE, machine_id: LAPTOP, argv: ['true'] })
  assert.deepEqual(answer.run?.confinement, { ...UNCONFINED, nice: 3, no_network: true })
  assert.match(explanationText(answer, ['true']), /^confined contain best_effort, nice 3, no_network$/m)
})

test('a confinement that this host cannot enforce stops the daemon, but is only a warning of the check', async (t) => {
  const path = await fileWith(t, withLines('nice = 3', '').replace('/var/lib', '/tmp'))
  const asked: Confinement[] = []
  const judge = async (confinement: Confinement) => {
    asked.push(confinement)
    return [{ key: 'nice', why: 'there is none' } as const]
  }
  const says = /:\d+: exec\.allow\[0\]\.nice: cannot be enforced on this host for "alice on her laptop": there is none/
  await assert.rejects(loadAcl({ path, explicit: true, judge }), (error: Error) => says.test(error.message))
  const report = await checkAclFile(path, judge)
  assert.deepEqual([report.ok, report.problems], [true, []])
  assert.ok(report.warnings.some((text) => says.test(text)))
  assert.equal(asked.length, 2)
  await writeFile(path, withLines(''))
  await loadAcl({ path, explicit: true, judge })
  assert.equal(asked.length, 2)
})
