import assert from 'node:assert/strict'
import { rmSync, writeFileSync } from 'node:fs'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { readLedger } from '../../../../src/programs/x0x/fleet/ledger-file.ts'
import { runCli } from '../../../support/fake-daemon.ts'
import {
  agentIdOf,
  denied,
  fleetDaemon,
  hostEnd,
  notStarted,
  unknown,
  unreachable,
  type AskedFanout,
} from '../../../support/fleet-daemon.ts'
import { NO_DISK, smallDisk } from '../../../support/small-disk.ts'

const HOSTS = ['web1', 'web2', 'web3', 'web4', 'web5']

/** A daemon whose fan-outs end with these results in turn. A host without a result succeeds. */
const place = async (t: TestContext, ...ends: readonly (readonly ReturnType<typeof hostEnd>[])[]) => {
  const asked: AskedFanout[] = []
  const { dir, seen } = await fleetDaemon(t, HOSTS, (fanout) => {
    const these = ends[asked.length] ?? []
    asked.push(fanout)
    const all = fanout.hosts.map((host) => these.find((end) => end.host === host) ?? hostEnd(host))
    fanout.begun(...all.filter(({ end }) => end !== 'not_started').map(({ host }) => host))
    fanout.ended(...all)
    fanout.close()
  })
  const file = join(dir, 'x.ledger')
  const exec = async (...argv: readonly string[]) => runCli(['--data-dir', dir, 'exec', ...argv])
  const state = async () => (await readLedger(file)).state
  return { asked, exec, file, seen, state }
}

const endsOf = async ({ state }: Awaited<ReturnType<typeof place>>) => (await state()).ends().map(({ host, end }) => `${host} ${end}`)

test('a ledger stores the result of each host, and all request IDs before the first request', async (t) => {
  const here = await place(t, [denied('web2'), notStarted('web3'), unknown('web4'), hostEnd('web5', { code: 1 })])
  const { status, stderr } = await here.exec('@all', '--ledger', here.file, '--', 'deploy', '42')
  assert.equal(status, 4)
  assert.ok(
    new RegExp(`^ {5}Retry the hosts where it did not run: x0x --data-dir \\S+ exec --retry ${here.file}\n`, 'm').test(stderr),
    stderr,
  )
  assert.ok(new RegExp(`Retry the hosts where it may have run: x0x --data-dir \\S+ exec --retry-unknown ${here.file}\n`).test(stderr))
  assert.deepEqual(await endsOf(here), ['web1 ran', 'web2 denied', 'web3 not_started', 'web4 unknown', 'web5 ran'])
  const { head, hosts } = await here.state()
  assert.deepEqual(head.argv, ['deploy', '42'])
  assert.deepEqual(here.asked[0]?.body['request_ids'], Object.fromEntries(hosts.map(({ agent_id, request_id }) => [agent_id, request_id])))
  assert.equal((await stat(here.file)).mode & 0o777, 0o600)
})

test('--retry repeats the stored command on hosts where it certainly did not run, until all have run', async (t) => {
  const here = await place(t, [denied('web2'), notStarted('web3'), unreachable('web5')], [denied('web2')])
  await here.exec('@all', '--ledger', here.file, '--', 'deploy', '42')
  const ids = here.asked[0]?.body['request_ids'] as Record<string, string>
  const again = await here.exec('--retry', here.file)
  assert.equal(again.status, 3)
  assert.match(again.stderr, /^x0x: 3 hosts asked: 2 ran, 1 denied,[^]*\nx0x: the whole ledger: 5 hosts asked: 4 ran, 1 denied/)
  const [, second] = here.asked
  assert.deepEqual(second?.body.argv, ['deploy', '42'])
  assert.deepEqual(second?.hosts, ['web2', 'web3', 'web5'])
  // A host that never answered keeps its request ID, so that it runs at most once. A denied host gets a new one.
  const newIds = second?.body['request_ids'] as Record<string, string>
  assert.equal(newIds[agentIdOf('web3')], ids[agentIdOf('web3')])
  assert.equal(newIds[agentIdOf('web5')], ids[agentIdOf('web5')])
  assert.notEqual(newIds[agentIdOf('web2')], ids[agentIdOf('web2')])
  assert.deepEqual(await endsOf(here), ['web1 ran', 'web2 denied', 'web3 ran', 'web4 ran', 'web5 ran'])
  assert.equal((await here.exec('--retry', here.file, '--', 'deploy', '42')).status, 0)
  assert.deepEqual(here.asked[2]?.hosts, ['web2'])
  const nobody = await here.exec('--retry', here.file)
  assert.equal(nobody.status, 0)
  assert.match(nobody.stderr, /^x0x: no host to retry: /)
  assert.equal(here.asked.length, 3)
})

test('after an interrupted retry of a denied host, the next retry uses the request ID of that retry', async (t) => {
  const asked: AskedFanout[] = []
  const { dir } = await fleetDaemon(t, HOSTS, (fanout) => {
    asked.push(fanout)
    if (asked.length > 1) return void fanout.response.destroy()
    fanout.begun(...fanout.hosts)
    fanout.ended(...fanout.hosts.map((host) => (host === 'web2' ? denied(host) : hostEnd(host))))
    fanout.close()
  })
  const file = join(dir, 'x.ledger')
  await runCli(['--data-dir', dir, 'exec', '@all', '--ledger', file, '--', 'deploy'])
  for (let at = 0; at < 3; at++) await runCli(['--data-dir', dir, 'exec', '--retry', file])
  assert.equal((await readLedger(file)).state.ledger().denied, 1)
  const [first, ...again] = asked.map(({ body }) => (body['request_ids'] as Record<string, string>)[agentIdOf('web2')])
  assert.notEqual(again[0], first)
  assert.deepEqual(again.slice(1), [again[0], again[0]])
})

test('a host keeps its name from the ledger in a retry, even if its contact was renamed', async (t) => {
  const calledNow: Record<string, string> = { web2: 'web3', web3: 'web2', web4: 'db' }
  let tries = 0
  const { dir } = await fleetDaemon(
    t,
    HOSTS,
    (fanout) => {
      const { hosts } = fanout
      if (tries === 0) {
        fanout.ended(...hosts.map(notStarted))
        fanout.close()
        tries = 1
        return
      }
      fanout.begun(...hosts)
      fanout.output('web2', 'two\n')
      fanout.ended(...hosts.filter((host) => host !== 'web4').map((host) => hostEnd(host, { code: host === 'web2' ? 7 : 0 })))
      fanout.response.end()
    },
    undefined,
    undefined,
    (host) => (tries === 0 ? host : (calledNow[host] ?? host)),
  )
  const file = join(dir, 'x.ledger')
  await runCli(['--data-dir', dir, 'exec', '@all', '--ledger', file, '--', 'deploy'])
  const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'exec', '--retry', file])
  assert.deepEqual([status, stdout], [4, 'web2: two\n'], stderr)
  assert.match(stderr, /failed \(1\): web2: exit status 7\n.*unknown \(1\): web4: /s)
  const { state } = await readLedger(file)
  assert.deepEqual(
    state.ends().map(({ host, end, code }) => [host, end, code]),
    [
      ['web1', 'ran', 0],
      ['web2', 'ran', 7],
      ['web3', 'ran', 0],
      ['web4', 'unknown', null],
      ['web5', 'ran', 0],
    ],
  )
})

test('the suggested retry command repeats the limits of the fan-out, which the ledger does not store', async (t) => {
  const here = await place(t, [denied('web2'), unknown('web4')])
  const bounds = ['--canary', '1', '--max-failures', '10%', '--timeout', '2.5']
  const { stderr } = await here.exec('@all', '--ledger', here.file, '--deadline', '60', ...bounds, '--', 'deploy')
  for (const which of ['--retry', '--retry-unknown'])
    assert.ok(stderr.includes(`exec ${which} ${here.file} ${bounds.join(' ')} --deadline 60\n`), stderr)
  const again = await here.exec('--retry', here.file, ...bounds)
  assert.deepEqual([again.status, here.asked[1]?.body['canary'], here.asked[1]?.body['max_failures']], [4, 1, '10%'])
})

test('--retry leaves hosts out whose command may have run, and --retry-unknown asks them', async (t) => {
  const here = await place(t, [unknown('web4'), hostEnd('web1', { code: 1 })])
  await here.exec('@all', '--ledger', here.file, '--', 'deploy')
  const { status, stderr } = await here.exec('--retry', here.file)
  assert.equal(status, 4)
  assert.match(stderr, /no host to retry: .*x0x exec --retry-unknown/)
  assert.equal(here.asked.length, 1)
  assert.equal((await here.exec('--retry-unknown', here.file)).status, 1)
  assert.deepEqual(here.asked[1]?.hosts, ['web4'])
  assert.equal((await here.exec('--retry-unknown', here.file)).status, 1)
  assert.equal(here.asked.length, 2)
})

test('a host that may have run once stays unknown through failed retries until it has run', async (t) => {
  const tries = [unreachable('web4'), denied('web4'), notStarted('web4'), unknown('web4'), unreachable('web4')].map((end) => [end])
  const here = await place(t, [unknown('web4'), denied('web2')], ...tries)
  await here.exec('@all', '--ledger', here.file, '--', 'deploy')
  for (const [end] of tries) {
    const { status, stderr } = await here.exec('--retry-unknown', here.file)
    assert.deepEqual([status, (await endsOf(here))[3]], [4, 'web4 unknown'], end!.end)
    assert.match(stderr, /\nx0x: the whole ledger: 5 hosts asked: 3 ran, 1 denied, 0 unreachable, 0 not started, 0 cancelled, 1 unknown\n/)
    assert.ok(stderr.includes(`exec --retry-unknown ${here.file}\n`), stderr)
  }
  await here.exec('--retry', here.file)
  assert.deepEqual(here.asked.at(-1)?.hosts, ['web2'])
  assert.equal((await here.exec('--retry-unknown', here.file)).status, 0)
  assert.deepEqual((await endsOf(here))[3], 'web4 ran')
})

test('a host cancelled before sending keeps its request ID, and one stopped by its agent gets a new one', async (t) => {
  const cancelled = { code: null, end: 'cancelled' } as const
  const here = await place(t, [hostEnd('web1', cancelled), hostEnd('web2', { ...cancelled, warnings: ['cancelled'] })])
  await here.exec('@all', '--ledger', here.file, '--', 'deploy')
  await here.exec('--retry', here.file)
  const [first, second] = here.asked.map(({ body }) => body['request_ids'] as Record<string, string>)
  assert.deepEqual(here.asked[1]?.hosts, ['web1', 'web2'])
  assert.deepEqual(
    ['web1', 'web2'].map((host) => first?.[agentIdOf(host)] === second?.[agentIdOf(host)]),
    [true, false],
  )
})

test('x0x suggests no retry for a host that was cancelled after it began', async (t) => {
  const ended = hostEnd('web1', { end: 'cancelled', code: null, signal: 15, warnings: ['cancelled'] })
  const here = await place(t, [ended], [])
  const { status, stderr } = await here.exec('@all', '--ledger', here.file, '--', 'deploy')
  assert.equal(status, 3)
  assert.doesNotMatch(stderr, /--retry/)
})

test('another command, other stdin or another file is refused, and no run is requested', async (t) => {
  const here = await place(t, [denied('web2')])
  const stdin = join(here.file, '..', 'stdin')
  await writeFile(stdin, 'hello')
  await here.exec('@all', '--ledger', here.file, '--stdin-file', stdin, '--', 'deploy', '42')
  const before = await readFile(here.file)
  for (const [argv, why] of [
    [['--retry', here.file, '--stdin-file', stdin, '--', 'deploy', '43'], /has another command: deploy 42/],
    [['--retry', here.file, '--stdin-file', stdin, '--', 'deploy', '42', ''], /has another command/],
    [['--retry', here.file], /had 5 bytes of stdin, but the command line has none/],
    [['--retry', here.file, '--stdin-file', here.file], /but the command line has another one/],
    [['--retry', stdin], /not a valid ledger/],
    [['@all', '--ledger', here.file, '--', 'deploy', '42'], /the ledger of another fan-out/],
    [['@all', '--ledger', stdin, '--', 'deploy', '42'], /exists, and is not a ledger\n {5}Try: a new file, such as/],
    [['@all', '--ledger', '', '--', 'deploy', '42'], /--ledger: a file name is missing/],
    [['--retry', ''], /--retry: a file name is missing/],
  ] as const) {
    const { status, stderr } = await here.exec(...argv)
    assert.equal(status, 2, argv.join(' '))
    assert.match(stderr, why)
  }
  assert.deepEqual(await readFile(here.file), before)
  assert.equal(here.asked.length, 1)
  assert.equal((await here.exec('--retry', here.file, '--stdin-file', stdin)).status, 0)
  assert.equal(here.asked[1]?.body['stdin_b64'], Buffer.from('hello').toString('base64'))
})

test('with no host left to retry, --json lists all hosts of the ledger', async (t) => {
  const here = await place(t, [hostEnd('web5', { code: 1, stdout_bytes_total: 3 })])
  await here.exec('@all', '--ledger', here.file, '--', 'deploy', '42')
  const { status, stdout } = await here.exec('--retry', here.file, '--json')
  assert.equal(status, 1)
  const { asked, hosts } = JSON.parse(stdout) as { asked: number; hosts: { host: string; code: number; output_cut: boolean }[] }
  assert.equal(asked, 5)
  assert.deepEqual(
    hosts.map(({ host, code, output_cut }) => [host, code, output_cut]),
    HOSTS.map((host) => [host, host === 'web5' ? 1 : 0, host === 'web5']),
  )
})

test('a host with output cut by a limit stays failed in the ledger and is not retried', async (t) => {
  const here = await place(t, [hostEnd('web5', { truncated: true, warnings: ['stdout_cap_hit'] })])
  const { status } = await here.exec('@all', '-q', '--ledger', here.file, '--', 'deploy', '42')
  assert.deepEqual([status, (await here.state()).ledger().failed], [1, 1])
  for (const retry of ['--retry', '--retry-unknown']) {
    const { status: again, stderr } = await here.exec(retry, here.file)
    assert.equal(again, 1)
    assert.match(stderr, /no host to retry: .*\n[^]*failed \(1\): web5: stdout was cut/)
  }
  assert.equal(here.asked.length, 1)
})

test('stdin too long for a fan-out is refused, with a hint for one host', async (t) => {
  const here = await place(t)
  const { status, stderr } = await here.exec('@all', '--stdin-file', '/dev/zero', '--', 'deploy', '42')
  assert.equal(status, 255)
  assert.match(stderr, /^x0x: stdin for a fan-out has more than 67108864 bytes\n {5}For one host, a file can be larger: /)
  assert.equal(here.asked.length, 0)
})

test('a result with another agent than in the ledger is not used', async (t) => {
  const { dir } = await fleetDaemon(t, HOSTS, (fanout) => {
    fanout.begun('web1')
    fanout.ended(hostEnd('web1', { agent_id: 'c'.repeat(64) }))
    fanout.close()
  })
  const file = join(dir, 'x.ledger')
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', '@all', '--ledger', file, '--', 'x'])
  assert.equal(status, 4)
  assert.match(stderr, /it broke off: .*another agent/)
  assert.deepEqual((await readLedger(file)).state.ledger().unknown, 1)
})

test('a fan-out that the daemon refuses leaves a ledger that can be retried', async (t) => {
  let refusing = true
  const { dir } = await fleetDaemon(
    t,
    HOSTS,
    (fanout) => {
      fanout.begun(...fanout.hosts)
      fanout.ended(...fanout.hosts.map((host) => hostEnd(host)))
      fanout.close()
    },
    undefined,
    () => refusing,
  )
  const file = join(dir, 'x.ledger')
  const refused = await runCli(['--data-dir', dir, 'exec', '@all', '--ledger', file, '--', 'x'])
  assert.equal(refused.status, 255)
  assert.match(
    refused.stderr,
    /^x0x: 16 fan-outs are running, which is the limit\n {5}no host was asked\. Try: x0x --data-dir \S+ exec --retry /,
  )
  refusing = false
  assert.equal((await runCli(['--data-dir', dir, 'exec', '--retry', file])).status, 0)
})

test('if the ledger cannot be written, the remaining runs are cancelled and the summary names every host', async (t) => {
  const disk = await smallDisk(t, 24)
  if (disk === null) return t.skip(NO_DISK)
  let fanout: AskedFanout
  const { dir } = await fleetDaemon(
    t,
    HOSTS,
    (asked) => {
      fanout = asked
      writeFileSync(join(disk, 'full'), Buffer.alloc(12 * 1024))
      asked.begun('web1', 'web2')
      asked.ended(hostEnd('web1', { message: 'x'.repeat(16 * 1024) }))
    },
    () => {
      fanout.ended(hostEnd('web2', { end: 'cancelled', code: null, signal: 15 }), ...['web3', 'web4', 'web5'].map(notStarted))
      fanout.close()
    },
  )
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', '@all', '--ledger', join(disk, 'x.ledger'), '--', 'x'])
  assert.equal(status, 3)
  assert.match(stderr, /^x0x: cannot write the ledger: ENOSPC.*; the remaining runs are cancelled\n/)
  assert.match(stderr, /5 hosts asked: 1 ran, 0 denied, 0 unreachable, 3 not started, 1 cancelled, 0 unknown; /)
})

test('if the ledger was removed, x0x suggests no retry', async (t) => {
  const { dir } = await fleetDaemon(t, HOSTS, (fanout) => {
    rmSync(join(dir, 'x.ledger'))
    fanout.begun('web1', 'web2')
    fanout.ended(unreachable('web1'), unknown('web2'), ...['web3', 'web4', 'web5'].map((host) => notStarted(host)))
    fanout.close()
  })
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', '@all', '--ledger', join(dir, 'x.ledger'), '--', 'x'])
  assert.equal(status, 4)
  assert.match(stderr, /x0x: cannot write the ledger: it was removed meanwhile; the remaining runs are cancelled\n/)
  assert.match(stderr, /5 hosts asked: /)
  assert.doesNotMatch(stderr, /--retry/)
})
