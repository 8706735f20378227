import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import type { RunKey } from '../../src/journal/run-key.ts'
import { listRunningMarks } from '../../src/journal/running-marks.ts'
import { verifyJournal } from '../../src/journal/verify.ts'
import { isAppError } from '../../src/base/errors.ts'
import type { ExecDiagnostics, ExecTotals } from '../../src/executor/exec-counters.ts'
import { OPERATIONS, PORT_VERSION, toExecutor, toNetwork, type ToExecutor } from '../../src/executor-api/messages.ts'
import { encodeCardLink, signCard } from '../../src/identity/card.ts'
import { randomBytes } from '../../src/identity/hash.ts'
import { pieceHashes } from '../../src/identity/piece-hashes.ts'
import { initiatorTranscript, responderTranscript } from '../../src/identity/link-crypto.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { proveOperation, RUN_OPERATION } from '../../src/identity/operator-proof.ts'
import { verifyAgent, type AgentSigner } from '../../src/identity/signing.ts'
import { ANNOUNCE_DOMAIN, CARD_DOMAIN } from '../../src/protocol/wire/card.ts'
import { encodeCbor } from '../../src/protocol/wire/cbor.ts'
import { REVOCATION_DOMAIN } from '../../src/protocol/wire/dm.ts'
import { EXEC_EXIT_DOMAIN, EXEC_REQUEST_DOMAIN, execExit, execFrame, execRequest, type ExecRequest } from '../../src/protocol/wire/exec.ts'
import { encodeFrame, FrameDecoder } from '../../src/protocol/wire/framing.ts'
import {
  KEM_CIPHERTEXT_BYTES,
  KEM_PUBLIC_KEY_BYTES,
  LINK_VERSION,
  MAX_NONCES_PER_PEER,
  MAX_PORT_BACKLOG,
  MAX_PORT_CALLS,
  MAX_PORT_MESSAGE,
  NONCE_BYTES,
} from '../../src/protocol/limits/wire.ts'
import { toHex } from '../../src/protocol/ids.ts'
import { LINK_DOMAINS, linkM1, linkM2, linkM2Core, linkM3 } from '../../src/protocol/wire/link.ts'
import { SplitDaemon } from '../support/captured-network.ts'
import { newParty, ProbeRun, signedFrame, type FakeLink, type FakeNetwork, type Party } from '../support/fake-network.ts'
import { linesOf } from '../support/journal.ts'
import { isRunning, MeshOfDaemons, residentOf, until, type TestDaemon } from '../support/mesh-of-daemons.ts'

// Plays a captured network process against the real executor process. At first it shares the channel and links of the real network process,
// later it is alone. It has all data of such a process, the keys of another agent, and recorded messages.

const LIMIT = { timeout: 60_000 }

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: SplitDaemon
/** Bob also knows, trusts and pins this agent. His ACL lets it run `other`. */
const mallory = newParty()
const programs: Record<'greet' | 'waits' | 'other' | 'unasked', string> = { greet: '', waits: '', other: '', unasked: '' }
/** Process ID of the executor process, which does not restart before the last test but one. */
let pid = 0
/** Messages that the real network process sent in the first session. */
let said: Uint8Array[] = []
/** The first Request, which ran. */
let recorded: Extract<ToExecutor, { type: 'run_open' }>
let honestRuns = 0

const runsSoFar = async (): Promise<number> => (await readFile(join(mesh.root, 'ran'), 'utf8').catch(() => '')).split('\n').length - 1
const diagnostics = async (network: FakeNetwork): Promise<ExecDiagnostics> =>
  (await network.client.query('exec_diagnostics')) as ExecDiagnostics
const totals = async (network: FakeNetwork): Promise<ExecTotals> => (await diagnostics(network)).totals
const eventsOf = async (id: string): Promise<string[]> =>
  (await readFile(bob.journalFile, 'utf8')).split('\n').flatMap((line) => {
    const parsed = line === '' ? null : (JSON.parse(line) as { request_id: string; event: string; reason?: string })
    return parsed?.request_id === id ? [parsed.reason ?? parsed.event] : []
  })

/** Recorded messages of a type. */
const saidOf = <T extends ToExecutor['type']>(type: T): Extract<ToExecutor, { type: T }>[] =>
  said.map((bytes) => toExecutor.decode(bytes)).filter((message) => message.type === type) as Extract<ToExecutor, { type: T }>[]

const requestIn = (frame: Uint8Array): ExecRequest => {
  const decoded = execFrame.decode(frame)
  assert.ok(decoded.type === 'request')
  return execRequest.decode(decoded.body)
}

/** Sends a frame to the executor process. Resolves with the reason of the denial, or null if the run only closed. */
const tell = async (network: FakeNetwork, link: number, nonce: Uint8Array, frame: Uint8Array): Promise<string | null> => {
  const run = new ProbeRun(network.client, network.client.openRun(link, nonce, frame), requestIn(frame), {})
  await run.closed
  const types = run.frames.map(({ type }) => type)
  assert.ok(types.length === 0 || (types.length === 1 && types[0] === 'exit'), types.join())
  const [last] = run.frames
  return last?.type === 'exit' ? execExit.decode(last.body).denial_reason : null
}

/** Checks that the executor process refuses everything in `work`, so that no run starts and no slot is taken. */
const inVain = async (network: FakeNetwork, work: () => Promise<FakeNetwork | void>): Promise<ExecTotals> => {
  const [earlier, ran] = [await diagnostics(network), await runsSoFar()]
  const later = await diagnostics((await work()) ?? network)
  assert.equal(later.totals.sessions_started, earlier.totals.sessions_started)
  assert.equal(later.totals.requests_allowed, earlier.totals.requests_allowed)
  assert.equal(later.active_sessions, earlier.active_sessions)
  assert.equal(await runsSoFar(), ran)
  assert.equal(bob.pid, pid)
  const difference = Object.entries(later.totals).flatMap(([name, count]) =>
    typeof count === 'number' ? [[name, count - (earlier.totals[name as keyof ExecTotals] as number)]] : [],
  )
  return Object.fromEntries(difference) as ExecTotals
}

/** Sends the messages on a separate connection until the last query is answered. Resolves with the next connection. */
const sayAgain = async (payloads: readonly Uint8Array[]): Promise<FakeNetwork> => {
  const socket = await bob.raw()
  const last = Number.MAX_SAFE_INTEGER
  const decoder = new FrameDecoder(MAX_PORT_MESSAGE)
  const heard = new Promise<void>((resolve) => {
    socket
      .once('close', resolve)
      .on('data', (chunk: Buffer) => {
        for (const payload of decoder.push(chunk)) {
          const message = toNetwork.decode(payload)
          if ('id' in message && message.id === last) resolve()
        }
      })
      .resume()
  })
  for (const payload of [...payloads, toExecutor.encode({ type: 'query', id: last, what: 'contacts' })]) socket.write(encodeFrame(payload))
  await heard
  socket.destroy()
  return bob.connect()
}

const helloFromAlice = async (): Promise<void> => {
  const result = await alice.exec('bob', [programs.greet])
  assert.deepEqual([result.status, String(result.stdout)], [0, 'hi\n'], result.stderr)
  honestRuns += 1
  assert.equal(await runsSoFar(), honestRuns)
}

const cardOf = async ({ signer, machine }: Party): Promise<string> => {
  const at = { issued_at_ms: Date.now(), expires_at_ms: Date.now() + 3_600_000 }
  const body = {
    version: 1 as const,
    agent_public_key: signer.publicKey,
    machine_id: machine.machineId,
    name: 'mallory',
    addresses: [],
    ...at,
  }
  return encodeCardLink(await signCard(signer, body, CARD_DOMAIN))
}

before(async () => {
  mesh = await MeshOfDaemons.create()
  alice = mesh.add('alice')
  bob = new SplitDaemon(join(mesh.root, 'bob'))
  const ran = `echo ran >> ${join(mesh.root, 'ran')}`
  programs.greet = await mesh.program('greet', `${ran}; echo hi`)
  programs.other = await mesh.program('other', `${ran}; echo other`)
  programs.unasked = await mesh.program('unasked', ran)
  programs.waits = await mesh.program('waits', 'echo ready; exec sleep 600')
  await alice.start()
  const entry = (agent: string, machine: string, names: readonly string[]): string =>
    `[[exec.allow]]\ndescription = "x"\nagent_id = "${agent}"\nmachine_id = "${machine}"\n` +
    names.map((name) => `[[exec.allow.commands]]\nargv = ["${name}"]\n`).join('')
  const acl =
    `[exec]\nenabled = true\naudit_log_path = "${bob.journalFile}"\ndefault_cwd = "/"\n` +
    entry(alice.agentId, alice.machineId, [programs.greet, programs.waits, programs.unasked]) +
    entry(mallory.signer.agentId, mallory.machine.machineId, [programs.other])
  await mkdir(bob.dir, { mode: 0o700 })
  await writeFile(bob.aclFile, acl, { mode: 0o600 })
  await bob.startExecutor()
  pid = bob.pid
  await bob.startNetwork()
  await bob.ok('contacts', 'import', (await alice.ok('card')).trim(), '--as', 'alice')
  await bob.ok('contacts', 'trust', 'alice', 'trusted')
  await bob.ok('contacts', 'pin', 'alice', alice.machineId)
  await bob.ok('contacts', 'import', await cardOf(mallory), '--as', 'mallory')
  await bob.ok('contacts', 'trust', 'mallory', 'trusted')
  await bob.ok('contacts', 'pin', 'mallory', mallory.machine.machineId)
  await alice.ok('contacts', 'import', (await bob.ok('card')).trim(), '--as', 'bob')
  await alice.ok('contacts', 'trust', 'bob', 'known')
  await helloFromAlice()
  said = bob.tap.said
  recorded = saidOf('run_open')[0]!
})

after(async () => {
  await bob.stop()
  await mesh.stop()
})

test('a Request that is altered or signed by another agent is refused, and its nonce is spent', LIMIT, async () => {
  const { tap } = bob
  const forge: ((body: Buffer, signature: Buffer) => Promise<Uint8Array | null>)[] = [
    async (body) => {
      body[body.indexOf('/greet') + 1]! ^= 1
      return null
    },
    async (body) => {
      body.write('/other', body.indexOf('/greet'))
      return null
    },
    async (_body, signature) => {
      signature[7]! ^= 0x10
      return null
    },
    async (body) => mallory.signer.sign(EXEC_REQUEST_DOMAIN, body),
  ]
  for (const change of forge) {
    const held = tap.withhold('run_open')
    const asking = alice.exec('bob', [programs.greet])
    const { run, link, stream_nonce, frame } = await held
    const difference = await inVain(tap.aside, async () => {
      const decoded = execFrame.decode(frame)
      assert.ok(decoded.type === 'request')
      const [body, signature] = [Buffer.from(decoded.body), Buffer.from(decoded.signature)]
      const signed = (await change(body, signature)) ?? signature
      const id = execRequest.decode(body).request_id
      assert.equal(
        await tell(tap.aside, link, stream_nonce, execFrame.encode({ type: 'request', body, signature: signed })),
        'unverified_sender',
      )
      assert.equal(await tell(tap.aside, link, stream_nonce, frame), 'unverified_sender', 'its nonce is spent')
      assert.deepEqual(await eventsOf(id), ['unverified_sender', 'unverified_sender'])
    })
    assert.deepEqual([difference.requests_denied, difference.requests_replayed], [2, 1])
    tap.tell({ type: 'run_closed', run })
    assert.equal((await asking).status, 255)
  }
})

test('a recorded Request is refused on its own stream, with a new nonce and on another link', LIMIT, async () => {
  const { aside } = bob.tap
  const { link, stream_nonce, frame } = recorded
  const difference = await inVain(aside, async () => {
    assert.equal(await tell(aside, link, stream_nonce, frame), 'unverified_sender')
    const [one, two] = await aside.client.mintNonces(link, 2)
    assert.equal(await tell(aside, link, one!, frame), 'unverified_sender')
    aside.client.dropNonces(link, [two!])
    assert.equal(await tell(aside, link, two!, frame), 'unverified_sender')
    assert.equal(await tell(aside, 0, stream_nonce, frame), 'unverified_sender', 'on the link to itself')
    assert.equal(await tell(aside, 4_711, stream_nonce, frame), null, 'on no link')
  })
  assert.deepEqual([difference.requests_replayed, difference.requests_denied, difference.malformed_frames], [4, 4, 1])
})

test('an agent cannot resume a run of another pair, and that run continues', LIMIT, async () => {
  const { tap } = bob
  const { aside } = tap
  const running = alice.startCli(['exec', 'bob', '--', programs.waits])
  await running.printed('ready')
  const open = tap.said.map((bytes) => toExecutor.decode(bytes)).findLast((message) => message.type === 'run_open')
  assert.ok(open)
  const request = requestIn(open.frame)
  const theirs = await aside.link(mallory)
  const difference = await inVain(aside, async () => {
    const nonce = await theirs.nonce()
    const attempts: [number, Uint8Array][] = [
      [theirs.number, nonce],
      [theirs.number, nonce],
      [open.link, open.stream_nonce],
      [0, open.stream_nonce],
    ]
    for (const [link, from] of attempts) {
      const frame = execFrame.encode({
        type: 'resume',
        request_id: request.request_id,
        stdout: 0,
        stderr: 0,
        request_nonce: request.stream_nonce,
      })
      const resumed = new ProbeRun(aside.client, aside.client.resumeRun(link, from, frame), request, {})
      await resumed.closed
      assert.deepEqual(resumed.frames, [{ type: 'gone', request_id: request.request_id, unseen: false }])
    }
    assert.deepEqual(await eventsOf(request.request_id), ['request', 'started'])
  })
  assert.equal(difference.resumes_refused, 4)
  running.child.kill('SIGINT')
  await running.finished
  await until('the run has ended', async () => (await diagnostics(aside)).active_sessions === 0)
  aside.client.linkClosed(theirs.number)
})

test('an operation fails without an operator proof, or with a wrong, reused or unrelated proof', LIMIT, async () => {
  const { aside } = bob.tap
  const contacts = await readFile(join(bob.dir, 'contacts.json'))
  const settings = await aside.client.settings()
  const body = Buffer.from(JSON.stringify({ contact: 'mallory', level: 'blocked' }))
  const used = saidOf('operate').at(-1)!
  const genuine = await bob.prove('contact_trust', body)
  let tries = 0
  const refused = async (operation: (typeof OPERATIONS)[number], content: Uint8Array, proof: string): Promise<void> => {
    tries += 1
    await assert.rejects(aside.client.operate(operation, content, proof), { code: 'operator_proof_required' })
  }
  const difference = await inVain(aside, async () => {
    for (const operation of OPERATIONS) await refused(operation, body, '')
    for (const key of [settings.api_token, settings.machine_seed, new Uint8Array(32), randomBytes(32)])
      await refused('contact_trust', body, proveOperation(key, 'contact_trust', body, Date.now()))
    await refused(used.operation, used.body, used.proof)
    await refused(used.operation, body, used.proof)
    await refused('contact_remove', body, genuine)
    await refused('contact_trust', Buffer.from(JSON.stringify({ contact: 'alice', level: 'blocked' })), genuine)
    await refused('contact_trust', body, `${genuine.slice(0, -1)}${genuine.endsWith('0') ? '1' : '0'}`)
    await refused('contact_trust', body, proveOperation(settings.api_token, 'contact_trust', body, 0))
  })
  assert.equal(difference.proofs_refused, tries)
  assert.deepEqual(await readFile(join(bob.dir, 'contacts.json')), contacts)
})

test('an operator proof of a run does not cover another argv, stdin, target or request ID', LIMIT, async () => {
  const { aside } = bob.tap
  const link = await aside.link(mallory)
  const lines = async (): Promise<number> => (await linesOf(bob.outgoingFile).catch(() => [])).length
  const stdin = { len: 2, pieces: pieceHashes(Buffer.from('in')) }
  const own = { agent_id: bob.agentId, argv: ['date'], stdin_len: 2, stdin_sha256: stdin.pieces.map(toHex) }
  const request_id = randomUUID()
  const call = {
    link: 0,
    request_id,
    stream_nonce: randomBytes(NONCE_BYTES),
    argv: ['date'],
    stdin,
    timeout_ms: null,
    cwd: null,
    clamp: false,
  }
  const changes: Partial<typeof call>[] = [
    { argv: ['date', '-u'] },
    { argv: ['rm'] },
    { stdin: { ...stdin, pieces: pieceHashes(Buffer.from('on')) } },
    { stdin: { ...stdin, len: 3 } },
    { link: link.number },
    { clamp: true },
    { request_id: randomUUID() },
  ]
  const before = await lines()
  const difference = await inVain(aside, async () => {
    for (const change of changes) {
      const proven = Buffer.from(JSON.stringify({ ...own, request_id }))
      const proof = await bob.prove(RUN_OPERATION, proven)
      await assert.rejects(aside.client.signRequest({ ...call, ...change }, { proven, proof }), { code: 'operator_proof_required' })
      await assert.rejects(aside.client.signRequest(call, { proven, proof }), { code: 'operator_proof_required' }, 'it is spent')
      await assert.rejects(aside.client.signRequest(call, { proven: Buffer.from(`${proven.toString()} `), proof }), {
        code: 'operator_proof_required',
      })
    }
  })
  assert.equal(difference.proofs_refused, 3 * changes.length)
  assert.equal(await lines(), before, 'what was not signed was not asked')
  aside.client.linkClosed(link.number)
})

test('endless signing calls are limited, and every signed Request is in the request log', LIMIT, async () => {
  const { aside } = bob.tap
  const lines = async (): Promise<number> => (await linesOf(bob.outgoingFile).catch(() => [])).length
  const before = await lines()
  const call = { link: 0, stream_nonce: randomBytes(NONCE_BYTES), argv: ['x'], stdin: null, timeout_ms: null, cwd: null, clamp: false }
  const outcomes = await Promise.allSettled(
    Array.from({ length: 3 * MAX_PORT_CALLS }, async () => aside.client.signRequest({ ...call, request_id: randomUUID() })),
  )
  const refused = outcomes.filter((outcome) => outcome.status === 'rejected')
  assert.ok(refused.length > 0)
  assert.ok(refused.every(({ reason }) => isAppError(reason, 'rate_limited')))
  assert.equal((await lines()) - before, outcomes.length - refused.length)
  assert.equal(bob.pid, pid)
})

test('the executor process signs only statements of the requested kind, not an Exit or a revocation', LIMIT, async () => {
  const { aside } = bob.tap
  const { agentPublicKey, machineId } = aside.client.identity
  const domains = [...Object.values(LINK_DOMAINS), CARD_DOMAIN, ANNOUNCE_DOMAIN, REVOCATION_DOMAIN, EXEC_REQUEST_DOMAIN, EXEC_EXIT_DOMAIN]
  const fits = (body: Uint8Array, signature: Uint8Array): string[] =>
    domains.filter((domain) => verifyAgent(agentPublicKey, domain, body, signature))
  const card = { name: 'bob', addresses: [], ttl_ms: 60_000 }
  for (const kind of ['card', 'announcement'] as const) {
    const signed = await aside.client.signCard({ ...card, kind })
    assert.deepEqual(fits(signed.body, signed.signature), [kind === 'card' ? CARD_DOMAIN : ANNOUNCE_DOMAIN])
  }
  // The bytes of an Exit of the real Request, used as the name of a card and as the argv of a Request.
  const exit = `${EXEC_EXIT_DOMAIN}\0${Buffer.from(requestIn(recorded.frame).request_id).toString('latin1')}`
  await assert.rejects(aside.client.signCard({ ...card, kind: 'card', name: exit }))
  const call = {
    link: 0,
    request_id: randomUUID(),
    stream_nonce: randomBytes(NONCE_BYTES),
    stdin: null,
    timeout_ms: null,
    cwd: null,
    clamp: false,
  }
  const asked = await aside.client.signRequest({ ...call, argv: [exit] })
  assert.deepEqual(fits(asked.body, asked.signature), [EXEC_REQUEST_DOMAIN])
  assert.throws(() => execExit.decode(asked.body))
  const m1 = linkM1.encode({
    versions: [LINK_VERSION],
    agent_public_key: mallory.signer.publicKey,
    kem_public_key: randomBytes(KEM_PUBLIC_KEY_BYTES),
    nonce: randomBytes(NONCE_BYTES),
  })
  const peer_machine = mallory.machine.machineId
  const accepted = await aside.client.linkAccept({ peer_machine, m1, kem_ciphertext: randomBytes(KEM_CIPHERTEXT_BYTES) })
  const machines = { machine_initiator: peer_machine, machine_responder: machineId }
  assert.deepEqual(fits(responderTranscript(machines, m1, accepted.m2_core), accepted.agent_signature), [LINK_DOMAINS.responder_agent])
  aside.client.linkDropped(accepted.handle)
})

test('the real network process still serves a run after these attacks', LIMIT, helloFromAlice)

test('a replay of a whole recorded session on a new connection starts no run', LIMIT, async () => {
  await bob.killNetwork()
  const network = await bob.connect()
  await inVain(network, async () => {
    return sayAgain(said)
  })
  assert.ok((await totals(await bob.connect())).links_refused > 0)
})

/** Builds a link with false claims, and resolves with the answer of the executor process. */
const lie = async (
  network: FakeNetwork,
  claims: { agentKey?: Uint8Array; machine?: string; signer?: AgentSigner; machineSigner?: Party['machine']; signature?: Uint8Array },
): Promise<number> => {
  const peer_machine = claims.machine ?? mallory.machine.machineId
  const machines = { machine_initiator: peer_machine, machine_responder: network.client.identity.machineId }
  const m1 = linkM1.encode({
    versions: [LINK_VERSION],
    agent_public_key: claims.agentKey ?? mallory.signer.publicKey,
    kem_public_key: randomBytes(KEM_PUBLIC_KEY_BYTES),
    nonce: randomBytes(NONCE_BYTES),
  })
  const {
    handle,
    m2_core: core,
    agent_signature,
  } = await network.client.linkAccept({
    peer_machine,
    m1,
    kem_ciphertext: randomBytes(KEM_CIPHERTEXT_BYTES),
  })
  const m2 = linkM2.encode({ core, agent_signature, machine_signature: new Uint8Array(64), mac: new Uint8Array(32) })
  const transcript = initiatorTranscript(machines, m1, m2)
  const m3 = linkM3.encode({
    agent_signature: claims.signature ?? (await (claims.signer ?? mallory.signer).sign(LINK_DOMAINS.initiator_agent, transcript)),
    machine_signature: (claims.machineSigner ?? mallory.machine).sign(LINK_DOMAINS.initiator_machine, transcript),
    mac: new Uint8Array(32),
  })
  return (await network.client.linkFinish({ handle, m2, m3 })).link
}

test('a link with false claims about an authorised agent, an absent machine or this daemon is refused', LIMIT, async () => {
  const network = await bob.connect()
  const alicesM1 = linkM1.decode(saidOf('link_accept').findLast(({ peer_machine }) => peer_machine === alice.machineId)!.m1)
  const alicesM3 = linkM3.decode(saidOf('link_finish')[0]!.m3)
  const settings = await network.client.settings()
  const own = machineKeyOf(settings.machine_seed)
  assert.equal(own.machineId, bob.machineId)
  const alicesKey = alicesM1.agent_public_key
  const lies: Parameters<typeof lie>[1][] = [
    { agentKey: alicesKey, machine: alice.machineId },
    { agentKey: alicesKey, machine: alice.machineId, signature: alicesM3.agent_signature },
    { agentKey: alicesKey },
    { machine: alice.machineId },
    { machine: alice.machineId, machineSigner: own },
    { machine: bob.machineId, machineSigner: own },
    { agentKey: network.client.identity.agentPublicKey },
  ]
  const difference = await inVain(network, async () => {
    for (const claims of lies) await assert.rejects(lie(network, claims), { code: 'peer_rejected' }, JSON.stringify(Object.keys(claims)))
    // A signature of the executor process in one role is not valid as the answer to itself in the other role.
    const peer_machine = mallory.machine.machineId
    const { handle, m1 } = await network.client.linkOpen({ peer_machine, kem_public_key: randomBytes(KEM_PUBLIC_KEY_BYTES) })
    const answer = await network.client.linkAccept({ peer_machine, m1, kem_ciphertext: randomBytes(KEM_CIPHERTEXT_BYTES) })
    const machines = { machine_initiator: bob.machineId, machine_responder: peer_machine }
    const machine_signature = mallory.machine.sign(LINK_DOMAINS.responder_machine, responderTranscript(machines, m1, answer.m2_core))
    const m2 = linkM2.encode({ core: answer.m2_core, agent_signature: answer.agent_signature, machine_signature, mac: new Uint8Array(32) })
    assert.ok(linkM2Core.decode(answer.m2_core))
    await assert.rejects(network.client.linkConfirm({ handle, m2 }), { code: 'peer_rejected' })
    // Calls out of order, repeated, in the wrong role, and for a link that was never begun.
    for (const wrong of [handle, answer.handle, 4_711])
      await assert.rejects(network.client.linkConfirm({ handle: wrong, m2 }), { code: 'conflict' })
    await assert.rejects(network.client.linkFinish({ handle: 4_712, m2, m3: Buffer.from('x') }), { code: 'conflict' })
  })
  assert.equal(difference.links_refused, lies.length + 5)
})

test('under a valid link, an agent cannot use the name, machine, Request or nonce of another', LIMIT, async () => {
  const network = await bob.connect()
  const link = await network.link(mallory)
  assert.equal(link.decision, 'accept')
  const signed = async (fields: Partial<ExecRequest>, argv = [programs.greet], nonce?: Uint8Array) => {
    const fresh = nonce ?? (await link.nonce())
    return { nonce: fresh, frame: await signedFrame(link.request(fresh, argv, fields), mallory.signer) }
  }
  const names: Partial<ExecRequest>[] = [
    { from_agent: alice.agentId, from_machine: alice.machineId },
    { from_machine: alice.machineId },
    { from_agent: bob.agentId, from_machine: bob.machineId },
    { to_agent: alice.agentId, to_machine: alice.machineId },
    { to_machine: alice.machineId },
    { to_agent: alice.agentId },
  ]
  const difference = await inVain(network, async () => {
    for (const fields of names) {
      const { nonce, frame } = await signed(fields)
      assert.equal(await tell(network, link.number, nonce, frame), 'unverified_sender')
    }
    for (const nonce of [recorded.stream_nonce, await link.nonce(), randomBytes(NONCE_BYTES)])
      assert.equal(await tell(network, link.number, nonce, recorded.frame), 'unverified_sender', "alice's own Request")
    const void_ = await voidNonces(network, link)
    for (const nonce of void_) {
      const { frame } = await signed({}, [programs.other], nonce)
      assert.equal(await tell(network, link.number, nonce, frame), 'unverified_sender')
    }
    const { nonce, frame } = await signed({}, [programs.greet])
    assert.equal(await tell(network, link.number, nonce, frame), 'argv_not_allowed', "its own Request for alice's program")
    // The link of the daemon to itself, on which the executor process is the peer. Bob is not in his own ACL.
    const [own] = await network.client.mintNonces(0, 1)
    const call = {
      link: 0,
      request_id: randomUUID(),
      stream_nonce: own!,
      argv: [programs.greet],
      stdin: null,
      timeout_ms: null,
      cwd: null,
      clamp: false,
    }
    const asked = await network.client.signRequest(call)
    assert.equal(await tell(network, 0, own!, execFrame.encode({ type: 'request', ...pick(asked) })), 'agent_machine_not_in_acl')
  })
  assert.equal(difference.requests_denied, names.length + 3 + 4 + 2)
  assert.equal((await (await link.ask([programs.other])).exit()).code, 0, 'what it may, it may')
  honestRuns += 1
})

const pick = ({ body, signature }: { body: Uint8Array; signature: Uint8Array }) => ({ body, signature })

/** Nonces that were given back, displaced by later ones, and spent. */
const voidNonces = async (network: FakeNetwork, link: FakeLink): Promise<Uint8Array[]> => {
  const [returned, pushed] = [await link.nonce(), await link.nonce()]
  network.client.dropNonces(link.number, [returned])
  await network.client.mintNonces(link.number, MAX_NONCES_PER_PEER)
  const spent = await link.nonce()
  await tell(network, link.number, spent, await signedFrame(link.request(spent, ['no']), mallory.signer))
  return [returned, pushed, spent]
}

test('malformed, nested, cut, unknown and unordered messages are counted, and the executor process survives', LIMIT, async () => {
  const network = await bob.connect()
  const link = await network.link(mallory)
  const nested = Array.from({ length: 40 }).reduce<Buffer>((inner) => Buffer.concat([Buffer.of(0x81), inner]), Buffer.of(0))
  const payloads: Uint8Array[] = [
    encodeCbor([99, 1]),
    encodeCbor([15, 2, 'agent.key']),
    encodeCbor([15, 3]),
    encodeCbor([14, 4, 'contact_shell', Buffer.alloc(0), '']),
    encodeCbor([11, 5, link.number]),
    encodeCbor([7, 6, link.number, MAX_NONCES_PER_PEER + 1]),
    encodeCbor([17, 7, link.number, Buffer.alloc(31), Buffer.of(1)]),
  ]
  const difference = await inVain(network, async () => {
    for (const payload of payloads) network.duplex.write(encodeFrame(payload))
    // Frames and ends of unopened runs, and a run under a number in use.
    network.duplex.write(encodeFrame(toExecutor.encode({ type: 'run_frame', run: 900, frame: Buffer.from('x') })))
    network.duplex.write(encodeFrame(toExecutor.encode({ type: 'run_lost', run: 900 })))
    network.duplex.write(encodeFrame(toExecutor.encode({ type: 'run_over', run: 900 })))
    const nonce = await link.nonce()
    const frame = await signedFrame(link.request(nonce, ['x']), mallory.signer)
    const open = toExecutor.encode({ type: 'run_open', run: 901, link: link.number, stream_nonce: nonce, frame })
    network.duplex.write(Buffer.concat([encodeFrame(open), encodeFrame(open)]))
    await network.client.query('contacts')
  })
  assert.equal(difference.malformed_frames, payloads.length + 1)
  // A message of no type, a value that is not a message, and a length of four gigabytes.
  const last = [encodeFrame(nested), encodeFrame(encodeCbor([6, 'x'])), encodeFrame(Buffer.from([0xff])), Buffer.from('ffffffff', 'hex')]
  for (const bytes of last) {
    const socket = await bob.raw()
    const closed = once(socket, 'close')
    socket.resume().write(bytes)
    await closed
    assert.equal(bob.pid, pid)
  }
})

test('a partial message, an aborted connection and a second connection do not disturb the executor process', LIMIT, async () => {
  for (const bytes of [encodeFrame(said[0]!).subarray(0, 3), encodeFrame(said[0]!).subarray(0, 5), Buffer.alloc(0)]) {
    const socket = await bob.raw()
    const closed = once(socket, 'close')
    socket.resume().end(bytes)
    await closed
  }
  const network = await bob.connect()
  const second = connect(bob.socket)
  await once(second.resume(), 'close')
  await inVain(network, async () => undefined)
})

test('the executor process survives 400 mutations of recorded messages and starts no run', LIMIT, async () => {
  let seed = 20_261_121
  const next = (below: number): number => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0
    return seed % below
  }
  let network = await bob.connect()
  const ran = await runsSoFar()
  for (let round = 0; round < 400; round++) {
    const payload = Buffer.from(said[next(said.length)]!)
    for (let flips = 0; flips <= next(3); flips++) payload[next(payload.length)]! ^= 1 + next(255)
    const cut = next(4) === 0 ? payload.subarray(0, next(payload.length)) : payload
    network.duplex.write(encodeFrame(cut))
    // If the executor process closed the connection instead of answering, it accepts a new one.
    const goesOn = await network.client.query('acl_status').then(
      () => true,
      () => false,
    )
    if (!goesOn) network = await bob.connect()
  }
  network = await bob.connect()
  assert.equal(await runsSoFar(), ran)
  assert.equal((await diagnostics(network)).active_sessions, 0)
  assert.equal(bob.pid, pid)
})

/** CPU time of the executor process, in clock ticks. */
const busy = async (): Promise<string> => {
  const stat = await readFile(`/proc/${pid}/stat`, 'latin1')
  return stat.slice(stat.lastIndexOf(')')).split(' ').slice(12, 14).join()
}

test('the executor process stops reading from a network process that never reads, in bounded memory', LIMIT, async () => {
  const before = await residentOf(pid)
  const socket = await bob.raw()
  const hello = encodeFrame(toExecutor.encode({ type: 'hello', id: 1, version: PORT_VERSION }))
  const questions = Buffer.concat(Array.from({ length: 200_000 }, () => hello))
  socket.write(questions)
  let quiet = 0
  let last = ''
  await until('the executor has stopped reading', async () => {
    const now = `${await busy()} ${socket.writableLength}`
    quiet = now === last ? quiet + 1 : 0
    last = now
    return quiet === 25
  })
  // Every answer is 2 KB, so that all of them would take 400 MB.
  assert.ok(socket.writableLength > questions.length / 2)
  const grown = (await residentOf(pid)) - before
  assert.ok(grown < 4 * MAX_PORT_BACKLOG, `${grown} bytes`)
  socket.destroy()
  await inVain(await bob.connect(), async () => undefined)
})

test('after these attacks the executor process still runs, its journals verify, and it serves an honest run', LIMIT, async () => {
  await bob.startNetwork()
  assert.equal((await diagnostics(bob.tap.aside)).active_sessions, 0)
  await helloFromAlice()
  assert.equal(bob.pid, pid)
  const running = async (): Promise<readonly RunKey[]> => listRunningMarks(join(bob.dir, 'runs')).catch(() => [])
  for (const file of [bob.journalFile, bob.outgoingFile]) {
    const report = await verifyJournal([file], { running })
    assert.deepEqual([report.ok, report.problems], [true, []], file)
  }
})

test('a restart of the executor process voids all recorded messages, and require_operator_proof prevents signing', LIMIT, async () => {
  const first = said
  said = [...first, ...bob.tap.said]
  await bob.killNetwork()
  const before = pid
  assert.equal(await bob.stopExecutor(), 0)
  await bob.startExecutor('require_operator_proof = true\n')
  pid = bob.pid
  assert.ok(!isRunning(before) && pid !== before)
  const network = await bob.connect()
  const link = await network.link(mallory)
  await inVain(network, async () => {
    for (const { stream_nonce, frame } of saidOf('run_open')) {
      assert.equal(await tell(network, link.number, stream_nonce, frame), 'unverified_sender')
      assert.equal(await tell(network, link.number, await link.nonce(), frame), 'unverified_sender')
    }
    for (const { operation, body, proof } of saidOf('operate'))
      await assert.rejects(network.client.operate(operation, body, proof), { code: 'operator_proof_required' })
    const call = { link: link.number, request_id: randomUUID(), stream_nonce: randomBytes(NONCE_BYTES), argv: ['x'] }
    await assert.rejects(network.client.signRequest({ ...call, stdin: null, timeout_ms: null, cwd: null, clamp: false }), {
      code: 'operator_proof_required',
    })
  })
  assert.ok((await totals(network)).proofs_refused >= saidOf('operate').length + 1)
  await bob.startNetwork()
  await helloFromAlice()
})

test('the executor process sends no secret except the machine seed and the API token', LIMIT, async () => {
  const heard = Buffer.concat([...bob.heard, ...bob.tap.heard])
  const [operator, agent, token] = await Promise.all(
    ['operator.key', 'agent.key', 'api-token'].map(async (name) =>
      (await readFile(join(bob.dir, name), 'latin1')).trim().split('\n').at(-1)!,
    ),
  )
  const [settings] = bob.tap.heard.map((bytes) => toNetwork.decode(bytes)).filter((message) => message.type === 'settings')
  assert.ok(settings && heard.includes(Buffer.from(settings.machine_seed)), 'what is there is found')
  assert.equal(Buffer.from(settings.api_token).toString('hex'), token)
  for (const secret of [operator!, agent!]) {
    assert.match(secret, /^[0-9a-f]{64}$/)
    assert.ok(!heard.includes(secret) && !heard.includes(Buffer.from(secret, 'hex')))
  }
  assert.ok(!heard.includes(programs.unasked), 'what the ACL allows')
})
