import assert from 'node:assert/strict'
import { request, type IncomingMessage } from 'node:http'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { decodeOperatorKey, FANOUT_OPERATION, OPERATOR_PROOF_HEADER, proveOperation } from '../src/identity/operator-proof.ts'
import { fanoutEventsOf, ledgerProblem, type FanoutEventJson, type FanoutHostJson } from '../src/protocol/api/fanout.ts'
import { CuttableProxy } from '../test/support/cuttable-proxy.ts'
import { announceNowhere, MeshOfDaemons, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

// A fan-out of one daemon with every kind of end that a host can have.

type Host = Extract<FanoutEventJson, { type: 'host' }>
type Ledger = Extract<FanoutEventJson, { type: 'ledger' }>

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let carol: TestDaemon
let dave: TestDaemon
let proxy: CuttableProxy
let waits: string
let exits: string
let copies: string
let token: string

const DEAD = 'd'.repeat(64)

/** One fan-out of alice. */
class Asked {
  readonly events: FanoutEventJson[] = []
  readonly #call: ReturnType<typeof request>
  readonly over: Promise<this>

  constructor(body: object, headers: Record<string, string> = {}) {
    this.#call = request({
      socketPath: join(alice.dir, 'api.sock'),
      method: 'POST',
      path: '/exec/fanout',
      headers: { host: 'localhost', authorization: `Bearer ${token}`, 'content-type': 'application/json', ...headers },
    })
    this.over = this.#read()
    this.over.catch(() => undefined)
    this.#call.end(JSON.stringify(body))
  }

  async #read(): Promise<this> {
    const response = await new Promise<IncomingMessage>((resolve, reject) => this.#call.on('response', resolve).on('error', reject))
    assert.equal(response.statusCode, 200)
    for await (const event of fanoutEventsOf(response)) this.events.push(event)
    return this
  }

  hangUp(): void {
    this.#call.destroy()
  }

  of<T extends FanoutEventJson['type']>(type: T): Extract<FanoutEventJson, { type: T }>[] {
    return this.events.filter((event): event is Extract<FanoutEventJson, { type: T }> => event.type === type)
  }

  get ledger(): Ledger {
    return this.of('ledger')[0]!
  }

  ended(daemon: TestDaemon | string): Host {
    const host = typeof daemon === 'string' ? daemon : daemon.name
    const ends = this.of('host').filter((one) => one.host === host)
    assert.equal(ends.length, 1, `${host} ended ${ends.length} times: ${JSON.stringify(this.events.at(-1))}`)
    return ends[0]!
  }

  async saw(what: string, is: (event: FanoutEventJson) => boolean): Promise<void> {
    await until(what, () => this.events.some(is))
  }

  /** Checks that the counts add up, and that each named host ended exactly once. */
  async addsUp(): Promise<this> {
    await this.over
    const asked = this.of('fanout').flatMap(({ hosts }) => hosts.map(({ host }) => host))
    assert.deepEqual(
      this.of('host')
        .map(({ host }) => host)
        .toSorted(),
      asked.toSorted(),
    )
    assert.equal(this.events.at(-1)?.type, 'ledger')
    assert.equal(ledgerProblem(this.ledger), null)
    assert.equal(this.ledger.asked, asked.length)
    return this
  }
}

const ask = (body: object): Asked => new Asked(body)
const isStarted = (daemon: TestDaemon) => (event: FanoutEventJson) => event.type === 'started' && event.host === daemon.name
const facts = ({ end, code, signal, denial_reason, error, incomplete }: FanoutHostJson) => ({
  end,
  code,
  signal,
  denial_reason,
  error,
  incomplete,
})

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob, carol, dave] = [mesh.add('alice'), mesh.add('bob'), mesh.add('carol'), mesh.add('dave')]
  waits = await mesh.program('waits', "trap 'exit 7' TERM\necho ready\nwhile :; do sleep 0.05; done")
  exits = await mesh.program('exits', 'exit $1')
  copies = await mesh.program('copies', 'cat')
  // The only path to carol is the proxy, which can be cut.
  proxy = await new CuttableProxy(() => Number(carol.multiaddr.split('/')[4])).listen()
  await Promise.all([alice, carol].map(announceNowhere))
  await alice.start()
  token = (await readFile(join(alice.dir, 'api-token'), 'utf8')).trim()
  for (const daemon of [bob, carol, dave])
    await daemon.writeAcl(
      [{ agent: alice, commands: [[waits], [copies], [exits, '<INT>'], ['echo', '<INT>'], ...(daemon === dave ? [] : [['true']])] }],
      'max_stdin_bytes = 1048576\n',
    )
  await Promise.all([bob, carol, dave].map(async (daemon) => daemon.start()))
  await alice.meet(bob, 'known')
  await alice.meet(dave, 'known')
  await alice.take(await carol.cardVia([`/ip4/127.0.0.1/tcp/${proxy.port}${await carol.peerSuffix()}`]), 'carol', 'known')
  for (const daemon of [bob, dave]) await daemon.meet(alice, 'trusted')
  await carol.take(await alice.cardVia([]), 'alice', 'trusted')
})

after(async () => {
  await mesh.stop()
  await proxy.close()
})

test('each host runs the command once with the same stdin, even if named twice, and the ledger is consistent', async () => {
  const asked = await ask({ hosts: ['bob', 'carol', 'dave', 'bob', bob.agentId], argv: [copies], stdin_b64: 'aGk=' }).addsUp()
  assert.deepEqual([asked.ledger.ok, asked.ledger.asked, asked.ledger.ran], [true, 3, 3], JSON.stringify(asked.events))
  for (const daemon of [bob, carol, dave]) {
    const output = asked.of('stdout').filter(({ host }) => host === daemon.name)
    assert.deepEqual(output.map(({ data_b64 }) => data_b64).join(''), 'aGk=')
    const { request_id, ...host } = asked.ended(daemon)
    assert.deepEqual([host.end, host.code, host.stdout_bytes_total, host.machine_id], ['ran', 0, 2, daemon.machineId])
    assert.deepEqual(
      (await daemon.journal()).filter((line) => line.request_id === request_id).map(({ event }) => event),
      ['request', 'started', 'exit'],
    )
  }
  const journal = (await readFile(join(alice.dir, 'requests.jsonl'), 'utf8'))
    .split('\n')
    .filter((line) => line.includes(asked.ledger.fanout_id))
  assert.equal(journal.length, 3)
})

test('a host that denies, a host that is unreachable and a host that fails each end as such', async () => {
  const asked = await ask({ hosts: ['bob', 'dave', DEAD], argv: ['true'] }).addsUp()
  assert.deepEqual(facts(asked.ended(bob)), { end: 'ran', code: 0, signal: null, denial_reason: null, error: null, incomplete: false })
  assert.deepEqual([asked.ended(dave).end, asked.ended(dave).denial_reason], ['denied', 'argv_not_allowed'])
  assert.deepEqual(
    [asked.ended(DEAD).end, asked.ended(DEAD).error, asked.ended(DEAD).machine_id],
    ['unreachable', 'peer_unreachable', null],
  )
  const failing = await ask({ hosts: ['bob', 'dave'], argv: [exits, '3'] }).addsUp()
  assert.deepEqual([failing.ledger.ok, failing.ledger.ran, failing.ledger.failed, failing.ended(bob).code], [false, 2, 2, 3])
})

test('a host whose daemon is killed, or whose path is cut for longer than the lease, ends as unknown', async () => {
  const asked = ask({ hosts: ['bob', 'carol', 'dave'], argv: [waits] })
  for (const daemon of [bob, carol, dave]) await asked.saw(`${daemon.name} began`, isStarted(daemon))
  proxy.refuse()
  await dave.stop('SIGKILL')
  await asked.saw('carol ended', (event) => event.type === 'host' && event.host === 'carol')
  await asked.saw('dave ended', (event) => event.type === 'host' && event.host === 'dave')
  const { request_id } = asked.ended(carol)
  const { fanout_id } = asked.of('fanout')[0]!
  const sessions = await alice.get<{ sessions: { host?: string; fanout_id?: string }[]; fanouts: object[] }>('/exec/sessions')
  assert.deepEqual(
    sessions.sessions.map(({ host, fanout_id: id }) => [host, id]),
    [['bob', fanout_id]],
  )
  assert.partialDeepStrictEqual(sessions.fanouts, [{ fanout_id, asked: 3, begun: 3, ended: 2 }])
  await alice.api.json({ method: 'POST', path: '/exec/cancel', body: { fanout_id } })
  await asked.addsUp()
  assert.deepEqual([asked.ended(carol).end, asked.ended(dave).end, asked.ended(bob).end], ['unknown', 'unknown', 'cancelled'])
  assert.equal(asked.ended(bob).code, 7)
  // The run ended on carol when its lease expired. Only the requester does not know.
  await until('it ended on carol', async () =>
    (await carol.journal()).some((line) => line.event === 'exit' && line.request_id === request_id),
  )
  proxy.allow()
  await dave.start()
})

test('a client that hangs up cancels the running commands, and no further host starts', async () => {
  const asked = ask({ hosts: ['bob', 'dave'], argv: [waits], parallel: 1 })
  await asked.saw('bob began', isStarted(bob))
  const { request_id } = asked.of('started')[0]!
  asked.hangUp()
  await until('it ended on bob', async () => (await bob.journal()).some((line) => line.event === 'exit' && line.request_id === request_id))
  await until('alice is done with it', async () => (await alice.get<{ fanouts: object[] }>('/exec/sessions')).fanouts.length === 0)
  assert.ok(!(await dave.journal()).some((line) => line.event === 'request' && line['argv'] === waits))
})

test('a daemon that stops during a fan-out first reports how each host ended', async () => {
  const asked = ask({ hosts: ['bob', 'carol', 'dave'], argv: [waits], parallel: 2 })
  for (const daemon of [bob, carol]) await asked.saw(`${daemon.name} began`, isStarted(daemon))
  const [, status] = await Promise.all([asked.addsUp(), alice.stop()])
  assert.equal(status, 0)
  assert.deepEqual([asked.ledger.cancelled, asked.ledger.not_started, asked.ended(dave).error], [2, 1, 'shutting_down'])
  await alice.start()
})

test('with operator proof required, one proof covers all hosts of its fan-out and no other request', async () => {
  await alice.stop()
  Object.assign(alice.options, { env: { X0X_REQUIRE_OPERATOR_PROOF: 'true' } })
  await alice.start()
  const key = decodeOperatorKey(await readFile(join(alice.dir, 'operator.key'), 'utf8'))
  assert.ok(key)
  const body = { hosts: ['bob,dave', 'carol'], argv: ['echo', '5'] }
  const proof = (of: object, operation: string = FANOUT_OPERATION): Record<string, string> => ({
    [OPERATOR_PROOF_HEADER]: proveOperation(key, operation, Buffer.from(JSON.stringify(of)), Date.now()),
  })
  const good = proof(body)
  assert.equal((await new Asked(body, good).addsUp()).ledger.ran, 3)
  for (const headers of [{}, good, proof({ ...body, argv: ['true'] }), proof(body, 'exec_run')])
    await assert.rejects(new Asked(body, headers).over, /403/)
  const lines = (await readFile(join(alice.dir, 'requests.jsonl'), 'utf8')).split('\n').filter((line) => line.includes('"proven":true'))
  assert.equal(lines.length, 3)
})
