import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import type { FanoutHostJson } from '../../../../src/protocol/api/fanout.ts'
import { MAX_JSON_OUTPUT } from '../../../../src/programs/x0x/fleet/line-views.ts'
import { runCli, type InProcessOptions } from '../../../support/fake-daemon.ts'
import { denied, fleetDaemon, hostEnd, notStarted, unknown, unreachable, type AskedFanout } from '../../../support/fleet-daemon.ts'

const names = (count: number): string[] => Array.from({ length: count }, (_, at) => `web${at + 1}`)

/** All hosts begin, `script` writes their output, and each ends as in `ends` or else successfully. */
const answering =
  (script: (fanout: AskedFanout) => void, ends: readonly FanoutHostJson[] = []) =>
  (fanout: AskedFanout): void => {
    const turned = fanout.hosts.filter((host) => ends.find((end) => end.host === host)?.end !== 'not_started')
    fanout.begun(...turned)
    script(fanout)
    fanout.ended(...fanout.hosts.map((host) => ends.find((end) => end.host === host) ?? hostEnd(host)))
    fanout.close()
  }

const exec = async (
  t: TestContext,
  hosts: readonly string[],
  asked: (fanout: AskedFanout) => void,
  flags: readonly string[] = [],
  options: InProcessOptions = {},
) => {
  const { dir, seen } = await fleetDaemon(t, hosts, asked)
  const result = await runCli(['--data-dir', dir, 'exec', 'web[1-9]', ...flags, '--', 'uptime'], options)
  const body = seen.find(({ path }) => path === '/exec/fanout')?.body
  return { ...result, seen, body: body === undefined ? null : (JSON.parse(body) as Record<string, unknown>) }
}

test('each output line starts with the name of its host, even if it arrives in several chunks', async (t) => {
  const { status, stdout, stderr } = await exec(
    t,
    names(10),
    answering((fanout) => {
      fanout.output('web1', 'on')
      fanout.output('web10', 'ten\nand ')
      fanout.output('web1', 'e\ntwo\n')
      fanout.output('web10', 'more')
      fanout.output('web2', 'bad\n', 'stderr')
      fanout.output('web3', Buffer.from([0xff, 0x00, 0x1b, 0x0a]))
    }),
  )
  assert.equal(status, 0)
  assert.deepEqual(stdout.split('\n').slice(0, 4), ['web10: ten', 'web1: one', 'web1: two', 'web3: \ufffd\u0000\u001b'])
  assert.equal(stdout.split('\n')[4], 'web10: and more')
  assert.match(stderr, /^web2: bad\nx0x: 10 hosts asked: 10 ran, 0 denied, 0 unreachable, 0 not started, 0 cancelled, 0 unknown; 0 s\n$/)
})

test('on a terminal, host names are aligned and control characters are escaped', async (t) => {
  const { stdout } = await exec(
    t,
    names(10),
    answering((fanout) => {
      fanout.output('web1', 'a\u001b[2Jb\r\n')
      fanout.output('web10', 'c\n')
    }),
    [],
    { terminal: true },
  )
  assert.deepEqual(stdout.split('\n').slice(0, 2), ['web1:  a\\x1b[2Jb', 'web10: c'])
})

test('the request has all options of the command line, the hosts as agent IDs, and an operator proof', async (t) => {
  const flags = ['--parallel', '3', '--canary', '2', '--max-failures', '10%', '--timeout', '2.5', '--deadline', '60', '--session', 'deploy']
  const { body, seen } = await exec(
    t,
    names(2),
    answering(() => undefined),
    flags,
  )
  const { fanout_id, hosts, ...rest } = body ?? {}
  assert.match(String(fanout_id), /^[0-9a-f-]{36}$/)
  assert.equal((hosts as string[]).length, 2)
  assert.deepEqual(rest, {
    argv: ['uptime'],
    clamp: true,
    timeout_ms: 2500,
    deadline_ms: 60_000,
    parallel: 3,
    canary: 2,
    max_failures: '10%',
    session: 'deploy',
  })
  assert.equal(seen[0]?.path, '/contacts/select?expr=web%5B1-9%5D')
  assert.match(String(seen[1]?.headers['x-x0x-operator-proof']), /\S/)
})

test('a fan-out sends stdin completely', async (t) => {
  const { body } = await exec(
    t,
    names(1),
    answering(() => undefined),
    ['--stdin-file', '-'],
    { stdin: 'hello' },
  )
  assert.equal(body?.['stdin_b64'], Buffer.from('hello').toString('base64'))
})

test('the summary names every host that did not succeed, with reason and next step', async (t) => {
  const ends = [
    hostEnd('web2', { code: 3 }),
    denied('web3'),
    denied('web4'),
    unreachable('web5'),
    hostEnd('web9', { end: 'unreachable', code: null, error: 'upgrade', message: 'it is old', next: 'update it' }),
    notStarted('web6'),
    hostEnd('web7', { end: 'cancelled', code: null, signal: 15 }),
    unknown('web8'),
  ]
  const { status, stderr } = await exec(
    t,
    names(9),
    answering(() => undefined, ends),
  )
  assert.equal(status, 4)
  const lines = stderr.split('\n')
  assert.equal(lines[0], 'x0x: 9 hosts asked: 2 ran (1 failed), 2 denied, 2 unreachable, 1 not started, 1 cancelled, 1 unknown; 0 s')
  for (const expected of [
    /^ {5}failed \(1\): web2: exit status 3$/,
    /^ {5}denied \(2\): web\[3-4\]: argv_not_allowed: no ACL entry for this agent matches that command$/,
    /^ {7}Try: x0x --data-dir \S+ acl mine web3$/,
    /^ {7}Try, on each host: x0x acl explain --last$/,
    /^ {7}Try, on each host: x0x acl suggest$/,
    /^ {5}unreachable \(1\): web5: no address answered$/,
    /^ {7}Try: x0x --data-dir \S+ doctor web5$/,
    /^ {5}unreachable \(1\): web9: it is old$/,
    /^ {7}update it$/,
    /^ {5}not started \(1\): web6: the first failed$/,
    /^ {5}cancelled \(1\): web7: /,
    /^ {5}unknown \(1\): web8: the connection was lost$/,
    /^ {7}Try, on web8: x0x audit tail {3}\(whether request 01a1fafc-/,
  ])
    assert.ok(
      lines.some((line) => expected.test(line)),
      `${String(expected)} in\n${stderr}`,
    )
})

test('the exit status is that of the worst host result', async (t) => {
  for (const [ends, expected] of [
    [[], 0],
    [[hostEnd('web1', { code: 7 })], 1],
    [[hostEnd('web1', { code: null, signal: 9 })], 1],
    [[hostEnd('web1', { incomplete: true })], 1],
    [[hostEnd('web1', { code: 7 }), denied('web2')], 3],
    [[unreachable('web2')], 3],
    [[notStarted('web2')], 3],
    [[hostEnd('web2', { end: 'cancelled', code: 0 })], 3],
    [[denied('web1'), unknown('web2')], 4],
  ] as const) {
    const { status, stderr } = await exec(
      t,
      names(3),
      answering(() => undefined, ends),
      ['-q'],
    )
    assert.equal(status, expected)
    // With --quiet, only failures are printed.
    assert.equal(stderr === '', expected === 0)
  }
})

test('--group prints equal outputs once, with their hosts', async (t) => {
  const { status, stdout, stderr } = await exec(
    t,
    names(20),
    answering(
      (fanout) => {
        for (const host of fanout.hosts) {
          fanout.output(host, host === 'web9' ? 'two\nli' : host === 'web3' ? '' : '6.1')
          fanout.output(host, host === 'web9' ? 'nes' : host === 'web3' ? '' : '\n')
        }
        fanout.output('web3', 'no such file\n', 'stderr')
      },
      [hostEnd('web3', { code: 2 })],
    ),
    ['--group'],
  )
  assert.equal(status, 1)
  assert.equal(stdout, 'web[1-2,4-8,10-20] (18): 6.1\nweb9:\n  two\n  lines\n')
  assert.match(stderr, /^web3 \(exit status 2\) stderr: no such file\nx0x: 20 hosts asked: 20 ran \(1 failed\)/)
})

test('--group lists hosts that ran without output', async (t) => {
  const { stdout } = await exec(
    t,
    names(3),
    answering(() => undefined, [denied('web2')]),
    ['-g'],
  )
  assert.equal(stdout, 'web[1,3] (2):\n')
})

test('--diff prints the most common output once, and how the other outputs differ', async (t) => {
  const common = 'a\nb\nc\nd\ne\n'
  const { stdout, stderr } = await exec(
    t,
    names(6),
    answering(
      (fanout) => {
        for (const host of names(3)) fanout.output(host, common)
        fanout.output('web4', common.replace('c', 'x'))
        fanout.output('web5', common)
        fanout.output('web6', Buffer.from([0x61, 0x0a, 0xff]))
      },
      [hostEnd('web5', { code: 1 })],
    ),
    ['--diff'],
  )
  assert.deepEqual(stdout.split('\n'), [
    'web[1-3] (3):',
    ...['a', 'b', 'c', 'd', 'e'].map((line) => `  ${line}`),
    'web4 differs:',
    '--- web[1-3]',
    '+++ web4',
    '@@ -1,5 +1,5 @@',
    ' a',
    ' b',
    '-c',
    '+x',
    ' d',
    ' e',
    'web6 differs:',
    'no text; they differ from byte 3 on',
    'web5 (exit status 1) differs:',
    '  the same output',
    '',
  ])
  assert.match(stderr, /^x0x: 6 hosts/)
})

test('--json prints one object in the format of the API', async (t) => {
  const { status, stdout, stderr } = await exec(
    t,
    names(2),
    answering((fanout) => fanout.output('web1', 'hi\u001b'), [denied('web2')]),
    ['--json'],
  )
  assert.equal(status, 3)
  assert.equal(stderr, '')
  const answer = JSON.parse(stdout) as Record<string, unknown> & { hosts: Record<string, unknown>[] }
  assert.deepEqual([answer['ok'], answer['asked'], answer['ran'], answer['denied']], [false, 2, 1, 1])
  assert.deepEqual(
    answer.hosts.map(({ host, end, stdout_b64, output_cut }) => [host, end, stdout_b64, output_cut]),
    [
      ['web1', 'ran', Buffer.from('hi\u001b').toString('base64'), false],
      ['web2', 'denied', '', false],
    ],
  )
})

test('a fan-out with invalid options exits with 2 and requests no run', async (t) => {
  const { dir, seen } = await fleetDaemon(t, names(2), () => assert.fail('it was asked'))
  for (const argv of [
    ['web[1-2]'],
    ['web[1-2]', '--'],
    ['web[1-2]', 'uptime'],
    ['--group', '--', 'x'],
    ['web1', 'web2', '--parallel', '0', '--', 'x'],
    ['web1', 'web2', '--parallel', '513', '--', 'x'],
    ['web1', '--canary', 'x', '--', 'x'],
    ['web1', '--max-failures', '0', '--', 'x'],
    ['web1', '--max-failures', '101%', '--', 'x'],
    ['web1', '--deadline', '0', '--', 'x'],
    ['web1', '--group', '--diff', '--', 'x'],
    ['web1', '--group', '--json', '--', 'x'],
    ['web1', '--retry', '/nonexistent'],
    ['--retry', '/nonexistent'],
    ['--retry', '/a', '--retry-unknown', '/b'],
    ['web1', '--ledger', '/nonexistent/ledger', '--', 'x'],
    ['web1', 'web2', '--prallel', '3', '--', 'x'],
  ]) {
    const { status, stderr } = await runCli(['--data-dir', dir, 'exec', ...argv])
    assert.equal(status, 2, argv.join(' '))
    assert.match(stderr, /^x0x: \S/)
  }
  assert.deepEqual(
    seen.filter(({ path }) => path === '/exec/fanout'),
    [],
  )
  assert.match((await runCli(['exec', 'web1', 'web2', '--prallel', '3', '--', 'x'])).stderr, /Did you mean --parallel/)
})

test('without a daemon, a fan-out exits with 255', async () => {
  const { status, stderr } = await runCli(['--data-dir', '/nonexistent-x0x', 'exec', '@all', '--', 'x'])
  assert.equal(status, 255)
  assert.match(stderr, /^x0x: cannot connect to x0xd \(daemon_unreachable\): /)
})

test('if the daemon disappears, hosts that had begun are unknown and the others not started', async (t) => {
  const { status, stdout, stderr } = await exec(t, names(3), (fanout) => {
    fanout.begun('web1', 'web2')
    fanout.output('web2', 'partial')
    fanout.ended(hostEnd('web1'))
    setTimeout(() => fanout.response.destroy(), 50)
  })
  assert.equal(status, 4)
  assert.equal(stdout, 'web2: partial\n')
  assert.match(stderr, /^x0x: it broke off: /)
  assert.match(stderr, /3 hosts asked: 1 ran, 0 denied, 0 unreachable, 1 not started, 0 cancelled, 1 unknown/)
})

test('a host that waits for an approver is reported at once, and each warning once for all hosts', async (t) => {
  const { stderr } = await exec(
    t,
    names(3),
    answering((fanout) => {
      const about = { request_id: 'r1', agent_id: 'a', machine_id: 'm' }
      fanout.say({
        type: 'waiting_for_approval',
        host: 'web2',
        ...about,
        expires_in_ms: 60_000,
        approvals_needed: 0,
        approvals_given: 0,
        reason: 'human',
      })
      for (const host of names(3))
        for (const kind of ['stdout_approaching_cap', 'stdout_cap_hit', 'duration_cap_hit'])
          fanout.say({ type: 'warning', host, request_id: 'r1', kind, message: 'what it\u001b means' })
    }),
  )
  assert.equal(stderr.split('\n')[0], 'x0x: web2: waiting for approval: an approver of web2; 1:00 left, Ctrl-C withdraws it')
  assert.equal(stderr.split('\n')[1], 'x0x: warning: stdout_cap_hit: web[1-3]: what it\\x1b means')
  assert.match(stderr.split('\n')[2] ?? '', /^x0x: 3 hosts asked/)
})

test('output cut by a limit is a failure in every format, and is reported even with --quiet', async (t) => {
  const cut = (host: string, stream: string) => hostEnd(host, { truncated: true, warnings: [`${stream}_cap_hit` as 'stdout_cap_hit'] })
  const ends = [cut('web1', 'stdout'), cut('web3', 'stderr')]
  for (const flags of [[], ['-q'], ['-g'], ['-g', '-q'], ['--diff', '-q'], ['--json'], ['--json', '-q']]) {
    const { status, stdout, stderr } = await exec(
      t,
      names(3),
      answering((fanout) => fanout.output('web1', 'part\n'), ends),
      flags,
    )
    assert.equal(status, 1, flags.join(' '))
    assert.match(stderr, /web1: stdout was cut \(stdout_cap_hit\)/, flags.join(' '))
    assert.match(stderr, /web3: stderr was cut \(stderr_cap_hit\)/, flags.join(' '))
    if (flags[0] === '--json') assert.deepEqual([JSON.parse(stdout).ok, JSON.parse(stdout).failed], [false, 2])
    if (flags[0] === '-g') assert.match(stdout, /^web1 \(stdout was cut \(stdout_cap_hit\)\): part$/m)
  }
})

test('output too long for --json is reported on standard error and counts as a failure', async (t) => {
  const long = answering((fanout) => {
    fanout.output('web1', Buffer.alloc(MAX_JSON_OUTPUT))
    fanout.output('web2', Buffer.alloc(MAX_JSON_OUTPUT + 1))
  })
  const { status, stderr } = await exec(t, names(2), long, ['--json', '-q'])
  assert.deepEqual([status, stderr], [1, 'x0x: web2: --json has only 1048576 bytes of each output\n'])
})

test('totals from the daemon that contradict its host results are reported and not used', async (t) => {
  const { status, stderr } = await exec(t, names(2), (fanout) => {
    fanout.ended(hostEnd('web1'), denied('web2'))
    const sums = { asked: 2, ran: 2, denied: 0, unreachable: 0, not_started: 0, cancelled: 0, unknown: 0, failed: 0 }
    fanout.say({ type: 'ledger', fanout_id: 'f', ok: true, ...sums })
    fanout.response.end()
  })
  assert.equal(status, 3)
  assert.match(stderr, /^x0x: it broke off: the totals of the daemon are wrong/)
})

test('wrong or missing totals are a failure even if all hosts succeed, and are reported with --quiet', async (t) => {
  const wrong = { asked: 3, ran: 3, denied: 0, unreachable: 0, not_started: 0, cancelled: 0, unknown: 0, failed: 0 }
  const failed = { ...wrong, asked: 2, ran: 2, failed: 1 }
  for (const [sums, why] of [
    [{ ok: true, ...wrong }, /totals of the daemon are wrong/],
    [{ ok: false, ...failed }, /totals of the daemon are wrong/],
    [null, /stopped before the end/],
  ] as const) {
    const ends = (fanout: AskedFanout): void => {
      fanout.begun('web1', 'web2')
      fanout.ended(hostEnd('web1'), hostEnd('web2'))
      if (sums !== null) fanout.say({ type: 'ledger', fanout_id: 'f', ...sums })
      fanout.response.end()
    }
    const quiet = await exec(t, names(2), ends, ['-q'])
    assert.equal(quiet.status, 1)
    assert.match(quiet.stderr, why)
    const { status, stdout } = await exec(t, names(2), ends, ['--json'])
    assert.deepEqual([status, (JSON.parse(stdout) as { ok: boolean }).ok], [1, false])
  }
})

test('if the daemon is killed, x0x says that it stopped before the end', async (t) => {
  const { status, stderr } = await exec(t, names(2), (fanout) => {
    fanout.begun('web1')
    fanout.response.write('', () => fanout.response.destroy())
  })
  assert.equal(status, 4)
  assert.match(stderr, /^x0x: it broke off: the local daemon stopped before the end; /)
})

test('the first result of a host counts, and a result of a host that was not asked ends the fan-out', async (t) => {
  const twice = await exec(t, names(1), (fanout) => {
    fanout.ended(hostEnd('web1'), hostEnd('web1', { code: 1 }))
    fanout.say({
      type: 'ledger',
      fanout_id: 'f',
      ok: true,
      asked: 1,
      ran: 1,
      denied: 0,
      unreachable: 0,
      not_started: 0,
      cancelled: 0,
      unknown: 0,
      failed: 0,
    })
    fanout.response.end()
  })
  assert.equal(twice.status, 0)
  const foreign = await exec(t, names(1), (fanout) => {
    fanout.begun('web1')
    fanout.ended(hostEnd('web2'))
    fanout.close()
  })
  assert.equal(foreign.status, 4)
  assert.match(foreign.stderr, /it broke off: the daemon reports "web2", which is not one of the hosts/)
})

test('a host that exceeds its time is reported with the limit that applied', async (t) => {
  const timedOut = ['web1', 'web2'].map((host) => hostEnd(host, { code: null, signal: 15, warnings: ['duration_cap_hit'] }))
  for (const [flags, why] of [
    [['--timeout', '2'], /\n {5}failed \(2\): web\[1-2\]: SIGTERM, duration_cap_hit\n {7}--timeout was reached/],
    [[], /\n {7}the time limit of the target was reached.*raise max_duration_secs .*\n/],
  ] as const) {
    const { status, stderr } = await exec(
      t,
      names(2),
      answering(() => undefined, timedOut),
      flags,
    )
    assert.equal(status, 1)
    assert.match(stderr, why)
  }
})
