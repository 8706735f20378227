import assert from 'node:assert/strict'
import { mkdir, readFile, rm, rmdir, utimes, writeFile } from 'node:fs/promises'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import * as z from 'zod'

import type { RouteKey } from '../src/doors/rest/routes.ts'
import { decodeOperatorKey, OPERATOR_PROOF_HEADER, proveOperation } from '../src/identity/operator-proof.ts'
import { RAW_RUN_TYPE } from '../src/protocol/api/run-events.ts'
import { fromHex } from '../src/protocol/ids.ts'
import { deriveEnrolSecret, enrolKeyId } from '../src/trust/enrolment-token.ts'
import { MeshOfDaemons, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { readAnswer, response, type Answer } from '../test/support/rest-server.ts'

// The answers of real daemons must match the OpenAPI document that one of them serves.

interface Operation {
  readonly responses: Readonly<Record<string, { readonly content: Readonly<Record<string, { readonly schema: object }>> }>>
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, object>> }
}
interface Sent {
  readonly body?: string
  readonly query?: string
  readonly headers?: Readonly<Record<string, string>>
}
/** A request that succeeds. `operation` is the operation that the operator proof covers. */
interface Good {
  readonly body?: object
  /** Query parameters. */
  readonly query?: string
  readonly operation?: string
}

const NDJSON = 'application/x-ndjson'
const SSE = 'text/event-stream'

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let token: string
let document: Document
/** A detached run of alice on her own agent. The last route forgets it. */
let detachedRun: string
/** A directory whose files alice may use. */
let files: string

const send = async (route: string, { body, query = '', headers = {} }: Sent): Promise<IncomingMessage> => {
  const [method, path] = route.split(' ')
  const type = body === undefined ? {} : { 'content-type': 'application/json' }
  const request = httpRequest({
    host: '127.0.0.1',
    port: alice.apiPort,
    method,
    path: `${path!.replace('{request_id}', detachedRun).replace('{agent}', alice.agentId)}${query}`,
    agent: false,
    headers: { ...type, ...headers },
  })
  request.end(body)
  return response(request)
}

const ask = async (route: string, sent: Sent = {}): Promise<Answer> => readAnswer(await send(route, sent))

const withToken = (): Record<string, string> => ({ authorization: `Bearer ${token}` })

const proofOf = async (operation: string, body: string): Promise<Record<string, string>> => {
  const key = decodeOperatorKey(await readFile(join(alice.dir, 'operator.key'), 'utf8'))
  assert.ok(key)
  return { [OPERATOR_PROOF_HEADER]: proveOperation(key, operation, Buffer.from(body), Date.now()) }
}

/** Schema of the document for an answer with this status and type, with its references resolved. */
const schemaOf = (route: string, status: number, type: string): z.ZodType => {
  const [method, path] = route.split(' ')
  const { responses } = document.paths[path!]![method!.toLowerCase()]!
  const { content } = responses[status] ?? responses['default']!
  // The content type of a text answer has a version parameter.
  const schema = (content[type] ?? Object.entries(content).find(([name]) => name.startsWith(`${type};`))?.[1])?.schema
  assert.ok(schema, `${route}: ${status} may be ${Object.keys(content).join(', ')}, not ${type}`)
  const text = JSON.stringify({ ...schema, $defs: document.components.schemas })
  return z.fromJSONSchema(JSON.parse(text.replaceAll('#/components/schemas/', '#/$defs/')) as never)
}

const typeOf = ({ headers }: Pick<IncomingMessage, 'headers'>): string => headers['content-type']!.split(';')[0]!

const fits = (route: string, { status, headers }: Pick<Answer, 'status' | 'headers'>, value: unknown): void => {
  const { error } = schemaOf(route, status, typeOf({ headers })).safeParse(value)
  assert.equal(error, undefined, `${route}: ${status} ${JSON.stringify(value).slice(0, 300)}`)
}

/** The objects of a streamed answer. */
const objectsIn = ({ headers, bytes }: Answer): { readonly type: string }[] => {
  const objects: { type: string; data_bytes?: number }[] = []
  for (let rest = bytes.toString('latin1'); rest !== '';) {
    const end = rest.indexOf('\n')
    const line = rest.slice(0, end).replace(/^data: /, '')
    const object = line === '' || line === ':' ? null : (JSON.parse(line) as (typeof objects)[number])
    if (object !== null) objects.push(object)
    rest = rest.slice(end + 1 + (typeOf({ headers }) === RAW_RUN_TYPE ? (object?.data_bytes ?? 0) : 0))
  }
  return objects
}

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await Promise.all([alice.start(), bob.start()])
  files = join(mesh.root, 'files')
  await mkdir(files)
  await writeFile(join(files, 'log'), 'log')
  await utimes(join(files, 'log'), 1_000_000, 1_000_000)
  const table = `[[exec.allow.files]]\nroot = "${files}"\nread = true\nwrite = true\ncreate_dirs = true\n`
  await alice.writeAcl([{ agent: alice, commands: [['echo', '<INT>']], keys: `detach = true\n${table}` }])
  await alice.restart()
  await alice.meet(bob, 'trusted')
  await bob.meet(alice, 'trusted')
  token = (await readFile(join(alice.dir, 'api-token'), 'utf8')).trim()
  detachedRun = (await alice.ok('-q', 'exec', alice.agentId, '--detach', '--', 'echo', '7')).trim()
  document = (await ask('GET /openapi.json', { headers: withToken() })).json as Document
})

after(async () => mesh.stop())

/** Requests for every route. The type ensures that a new route is tested too. */
const goodRequests = async (): Promise<Record<Exclude<RouteKey, 'GET /direct/events'>, Good>> => {
  const run = { agent_id: alice.agentId, argv: ['echo', '7'] }
  const pin = { contact: 'bob', machine_id: bob.machineId }
  const salt = 'ab'.repeat(32)
  const key = decodeOperatorKey(await readFile(join(alice.dir, 'operator.key'), 'utf8'))!
  return {
    'GET /health': {},
    'GET /routes': {},
    'GET /openapi.json': {},
    'GET /agent': {},
    'GET /agent/card': {},
    'POST /agent/card/import': { body: { card: (await bob.ok('card')).trim() }, operation: 'card_import' },
    'GET /contacts': {},
    'POST /contacts/meet': {
      body: { name: 'bob', agent_id: bob.agentId, machine_id: bob.machineId, addresses: [] },
      operation: 'contact_meet',
    },
    'POST /enrol/create': { body: { salt, operator_name: 'alice', uses: 2, expires_in_ms: 60_000 }, operation: 'enrol_create' },
    'POST /enrol/list': { body: {}, operation: 'enrol_list' },
    'POST /enrol/revoke': { body: { id: enrolKeyId(deriveEnrolSecret(key, fromHex(salt))) }, operation: 'enrol_revoke' },
    'POST /contacts/trust': { body: { contact: 'bob', level: 'trusted' }, operation: 'contact_trust' },
    'POST /contacts/pin': { body: pin, operation: 'contact_pin' },
    'GET /trust/evaluate': { query: `?agent=bob&machine_id=${bob.machineId}` },
    'GET /peers': {},
    'POST /agents/connect': { body: { agent: 'bob' } },
    'POST /agents/ping': { body: { agent_id: alice.agentId } },
    'POST /direct/send': { body: { agent: 'bob', payload_b64: 'AA==' } },
    'POST /exec/run': { body: run },
    'POST /exec/terminal': { body: { ...run, terminal: { columns: 80, rows: 24, term: 'dumb' } } },
    'POST /exec/fanout': { body: { hosts: [alice.agentId, 'bob'], argv: ['echo', '7'] } },
    'GET /agents/{agent}/files': { query: `?path=${files}&stat=true` },
    'PUT /agents/{agent}/files': { query: `?path=${files}/new&mode=0600` },
    'POST /agents/{agent}/files/append': { query: `?path=${files}/log&mtime=1970-01-12T13:46:40.000000000Z` },
    'POST /agents/{agent}/files/directory': { body: { path: `${files}/directory` } },
    'GET /runs': { query: '?refresh=true' },
    'GET /runs/{request_id}': { query: '?refresh=false' },
    'GET /runs/{request_id}/output': { query: '?from=0&follow=false' },
    'POST /runs/wait': { body: { request_ids: [detachedRun] } },
    'POST /runs/cancel': { body: { request_id: detachedRun } },
    'POST /runs/forget': { body: { request_id: detachedRun } },
    'GET /exec/rules': { query: `?agent_id=${alice.agentId}` },
    'GET /exec/sessions': {},
    'GET /exec/output': { query: '?request_id=01890a5d-ac96-774b-bcce-b302099a8057' },
    'GET /exec/events': {},
    'POST /exec/incoming': { body: {}, operation: 'exec_incoming' },
    'POST /exec/incoming/cancel': {
      body: { request_id: '01890a5d-ac96-774b-bcce-b302099a8057' },
      operation: 'exec_incoming_cancel',
    },
    'POST /exec/cancel': { body: { request_id: '01890a5d-ac96-774b-bcce-b302099a8057' } },
    'GET /diagnostics/exec': {},
    'GET /diagnostics/dm': {},
    'GET /diagnostics/mesh': {},
    'GET /metrics': {},
    'POST /keys/rotate-token': { body: { token: 'operator_key' }, operation: 'token_rotate' },
    'POST /acl/sign': { body: { acl_version: 1, acl_sha256: '0'.repeat(64) }, operation: 'acl_sign' },
    'POST /contacts/unpin': { body: pin, operation: 'contact_unpin' },
    'POST /contacts/label': { body: { contact: 'bob', labels: { role: 'db' } }, operation: 'contact_label' },
    'GET /contacts/select': { query: '?expr=bob&expr=role=db' },
    'POST /contacts/remove': { body: { contact: 'bob' }, operation: 'contact_remove' },
    // A revocation is permanent, so it comes last and concerns a machine of another agent.
    'POST /agent/revoke': { body: { machine_id: bob.machineId }, operation: 'identity_revoke' },
  }
}

test('a streamed run matches the document in each format', async () => {
  const body = JSON.stringify({ agent_id: alice.agentId, argv: ['echo', '7'] })
  for (const accept of [NDJSON, SSE, RAW_RUN_TYPE]) {
    const answer = await ask('POST /exec/run', { body, headers: { ...withToken(), accept } })
    assert.equal(typeOf(answer), accept)
    const objects = objectsIn(answer)
    assert.deepEqual([objects[0]?.type, objects.at(-1)?.type], ['started', 'exit'])
    for (const object of objects) fits('POST /exec/run', answer, object)
  }
  for (const accept of [NDJSON, SSE]) {
    const many = JSON.stringify({ hosts: [alice.agentId, 'bob'], argv: ['echo', '7'] })
    const answer = await ask('POST /exec/fanout', { body: many, headers: { ...withToken(), accept } })
    assert.equal(typeOf(answer), accept)
    const objects = objectsIn(answer)
    assert.deepEqual([objects[0]?.type, objects.at(-1)?.type], ['fanout', 'ledger'])
    for (const object of objects) fits('POST /exec/fanout', answer, object)
  }
  const denied = await ask('POST /exec/run', { body: body.replace('"7"', '"x"'), headers: withToken() })
  assert.equal((denied.json as { denial_reason: string }).denial_reason, 'argv_not_allowed')
  fits('POST /exec/run', denied, denied.json)
})

test('a detached run is started and shown as the document describes, in each format', async () => {
  const started = await ask('POST /exec/run', {
    body: JSON.stringify({ agent_id: alice.agentId, argv: ['echo', '8'], detach: true }),
    headers: withToken(),
  })
  assert.equal(started.status, 200)
  fits('POST /exec/run', started, started.json)
  const route = 'GET /runs/{request_id}/output'
  for (const accept of [NDJSON, SSE, RAW_RUN_TYPE]) {
    const answer = await ask(route, { headers: { ...withToken(), accept } })
    assert.equal(typeOf(answer), accept)
    const objects = objectsIn(answer)
    assert.deepEqual([objects[0]?.type, objects.at(-1)?.type], ['state', 'exit'])
    for (const object of objects) fits(route, answer, object)
  }
})

test('an incoming direct message matches the document', async () => {
  const answer = await send('GET /direct/events', { headers: withToken() })
  assert.equal(typeOf(answer), SSE)
  assert.deepEqual(Object.keys(document.paths['/direct/events']!['get']!.responses['200']!.content), [SSE])
  await bob.ok('direct', 'send', 'alice', 'hello')
  for await (const part of answer as AsyncIterable<Buffer>) {
    const line = /^data: (.*)$/m.exec(part.toString())
    if (line === null) continue
    fits('GET /direct/events', { status: 200, headers: answer.headers }, JSON.parse(line[1]!))
    return
  }
  assert.fail('the stream ended without a message')
})

/** Checks that the answer has this status and matches its schema. */
const answers = async (route: string, sent: Sent, status: number): Promise<void> => {
  const answer = await ask(route, sent)
  assert.equal(answer.status, status, `${route}: ${answer.text.slice(0, 300)}`)
  fits(route, answer, answer.json ?? answer.text)
}

const refusesAsDocumented = async (route: string, body: string | null, query: string | undefined, proven: boolean): Promise<void> => {
  const sent = { ...(body !== null && { body }), ...(query !== undefined && { query }) }
  await answers(route, { ...sent, headers: { ...withToken(), host: 'elsewhere.example' } }, 403)
  if (route !== 'GET /health') await answers(route, sent, 401)
  if (body !== null) await answers(route, { body: '{"no_such_key":1}', headers: withToken() }, 400)
  if (query !== undefined) await answers(route, { query: `${query}&no_such_key=1`, headers: withToken() }, 400)
  if (proven) await answers(route, { ...sent, headers: withToken() }, 403)
}

test('every route succeeds and refuses as the document describes', async () => {
  const all = await goodRequests()
  const documented = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((m) => `${m.toUpperCase()} ${path}`),
  )
  assert.deepEqual(documented.toSorted(), [...Object.keys(all), 'GET /direct/events'].toSorted())
  await refusesAsDocumented('GET /direct/events', null, undefined, false)
  for (const [route, { body, query, operation }] of Object.entries(all)) {
    const text = body === undefined ? null : JSON.stringify(body)
    await refusesAsDocumented(route, text, query, operation !== undefined)
    const proof = text === null || operation === undefined ? {} : await proofOf(operation, text)
    // The run has already ended, so it cannot be cancelled. A terminal needs lines.
    const status =
      route === 'POST /exec/terminal'
        ? 400
        : ['POST /exec/cancel', 'POST /exec/incoming/cancel', 'GET /exec/output'].includes(route)
          ? 404
          : 200
    const sent = { ...(text !== null && { body: text }), ...(query !== undefined && { query }) }
    await answers(route, { ...sent, headers: { ...withToken(), accept: 'application/json', ...proof } }, status)
  }
})

test('a daemon that does not work answers as the document describes', async () => {
  await rm(alice.journalFile)
  await mkdir(alice.journalFile)
  const answer = await ask('GET /health')
  assert.deepEqual([answer.status, (answer.json as { ok: boolean }).ok], [503, false])
  fits('GET /health', answer, answer.json)
  await rmdir(alice.journalFile)
})
