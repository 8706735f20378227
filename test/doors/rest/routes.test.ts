import assert from 'node:assert/strict'
import { test } from 'node:test'

import { AppError } from '../../../src/base/errors.ts'
import { OPERATOR_PROOF_HEADER } from '../../../src/identity/operator-proof.ts'
import { ROUTES } from '../../../src/doors/rest/routes.ts'
import { RAW_RUN_TYPE } from '../../../src/protocol/api/run-events.ts'
import { AGENT, MACHINE, OTHER_AGENT, restComponents, startDoor } from '../../support/rest-server.ts'

test('the list of routes comes from the route table', async (t) => {
  const door = await startDoor(t)
  assert.deepEqual((await door.call('GET', '/routes')).json, { ok: true, routes: ROUTES })
})

test('the OpenAPI document describes every route with its body and security', async (t) => {
  const door = await startDoor(t)
  const { json } = await door.call('GET', '/openapi.json')
  assert.equal(json.openapi, '3.1.0')
  const documented = Object.entries(json.paths as Record<string, object>).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  )
  assert.deepEqual(documented.toSorted(), ROUTES.map(({ method, path }) => `${method} ${path}`).toSorted())
  const run = json.paths['/exec/run'].post
  assert.deepEqual(Object.keys(run.requestBody.content), ['application/json', 'application/x-ndjson'])
  assert.deepEqual(Object.keys(run.responses['200'].content), [
    'application/json',
    'application/x-ndjson',
    'text/event-stream',
    RAW_RUN_TYPE,
  ])
  assert.deepEqual(json.paths['/health'].get.security, [])
  assert.deepEqual(json.paths['/contacts/pin'].post.security, [{ token: [], proof: [] }])
  assert.deepEqual(run.security, [{ token: [] }, { token: [], proof: [] }])
  const events = json.paths['/direct/events'].get.responses['200'].content['text/event-stream']
  assert.deepEqual(events, { schema: { $ref: '#/components/schemas/DirectEvent' } })
  const refs = JSON.stringify(json).matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g)
  for (const [, name] of refs) assert.ok(json.components.schemas[name!] !== undefined, `${name} is not defined`)
})

/** Paths of objects below a schema that allow any key with any value. Follows each reference once. */
const openObjects = (schema: unknown, document: { readonly components: { readonly schemas: Record<string, unknown> } }): string[] => {
  const seen = new Set<string>()
  const look = (value: unknown, at: string): string[] => {
    if (typeof value !== 'object' || value === null) return []
    const { $ref, type, additionalProperties } = value as { $ref?: string; type?: string; additionalProperties?: unknown }
    if ($ref !== undefined && !seen.has($ref)) {
      seen.add($ref)
      return look(document.components.schemas[$ref.split('/').at(-1)!], $ref)
    }
    const isOpen = type === 'object' && (additionalProperties === undefined || JSON.stringify(additionalProperties) === '{}')
    return [...(isOpen ? [at] : []), ...Object.entries(value).flatMap(([key, part]) => look(part, `${at}.${key}`))]
  }
  return look(schema, '')
}

test('every answer in the OpenAPI document has a closed schema, including streams and errors', async (t) => {
  const door = await startDoor(t)
  const { json } = await door.call('GET', '/openapi.json')
  const open = Object.entries(json.paths as Record<string, Record<string, { responses: object }>>)
    .filter(([path]) => path !== '/openapi.json')
    .flatMap(([path, methods]) =>
      Object.values(methods).flatMap(({ responses }) => openObjects(responses, json).map((at) => `${path} ${at}`)),
    )
  assert.deepEqual(open, [])
  assert.deepEqual(json.info.license, { name: 'Apache License 2.0', identifier: 'Apache-2.0' })
  assert.equal(json.servers.length, 1)
})

test('health shows the true state and no data that requires a token', async (t) => {
  const parts = restComponents()
  let acl: unknown = { status: 'exec_disabled', journal: null, loaded_from: '/secret/path' }
  let [listening, isDraining] = [true, false]
  const door = await startDoor(t, {
    executor: {
      ...parts.executor,
      get isDraining() {
        return isDraining
      },
      query: async () => (acl instanceof Error ? Promise.reject(acl) : acl),
    },
    node: {
      addresses: () => [],
      get listening() {
        return listening
      },
    },
  })
  const health = async (): Promise<{ status: number; json: Record<string, unknown> }> => door.call('GET', '/health', { token: null })
  const first = await health()
  assert.equal(first.status, 200)
  const { uptime_secs, ...rest } = first.json
  assert.equal(typeof uptime_secs, 'number')
  assert.deepEqual(rest, {
    ok: true,
    version: '1.2.3',
    agent: AGENT.slice(0, 8),
    draining: false,
    mesh: { listening: true, linked_peers: 0 },
    exec: { status: 'exec_disabled', journal_writable: null },
  })
  listening = false
  assert.equal((await health()).status, 503)
  listening = true
  isDraining = true
  const draining = await health()
  assert.deepEqual([draining.status, draining.json['ok'], draining.json['draining']], [503, false, true])
  isDraining = false
  acl = { status: 'enabled', journal: { writable: false } }
  assert.deepEqual([(await health()).status, (await health()).json['ok']], [503, false])
  acl = new AppError('shutting_down')
  const gone = await health()
  assert.equal(gone.status, 503)
  assert.deepEqual(gone.json['exec'], { status: 'executor_unreachable', journal_writable: null })
})

test('an unknown path gets not_found for every method', async (t) => {
  const door = await startDoor(t)
  for (const [method, path] of [
    ['GET', '/nowhere'],
    ['DELETE', '/nowhere'],
    ['GET', '/exec/run/'],
    ['GET', '/'],
  ] as const) {
    const { status, json, headers } = await door.call(method, path)
    assert.deepEqual([status, json.error, headers.allow], [404, 'not_found', undefined], `${method} ${path}`)
  }
})

test('a known path with another method gets 405, and the answer names the right method', async (t) => {
  const door = await startDoor(t)
  for (const [method, path, allow] of [
    ['DELETE', '/agent', 'GET'],
    ['POST', '/agent', 'GET'],
    ['GET', '/exec/run', 'POST'],
    ['PUT', '/exec/run?x=1', 'POST'],
  ] as const) {
    const { status, json, headers } = await door.call(method, path, method === 'POST' ? { body: {} } : {})
    assert.deepEqual([status, json.error, headers.allow], [405, 'method_not_allowed', allow], `${method} ${path}`)
    assert.equal(json.message, `${path.split('?')[0]}: expected ${allow}, not ${method}`)
  }
  const head = await door.call('HEAD', '/agent')
  assert.deepEqual([head.status, head.headers.allow, head.text], [405, 'GET', ''])
  assert.equal((await door.call('DELETE', '/agent', { token: null })).status, 401)
})

test('the agent and its card show loopback addresses only if the agent has no others', async (t) => {
  const [loopback, lan] = ['/ip4/127.0.0.1/tcp/1/p2p/x', '/ip4/192.168.1.2/tcp/1/p2p/x']
  for (const [all, told] of [
    [[loopback, lan], [lan]],
    [[loopback], [loopback]],
  ] as const) {
    const cards: unknown[] = []
    const { executor } = restComponents()
    const signCard: typeof executor.signCard = async ({ addresses }) => {
      cards.push(addresses)
      throw new AppError('internal', 'no card is made')
    }
    const door = await startDoor(t, { node: { addresses: () => [...all], listening: true }, executor: { ...executor, signCard } })
    assert.deepEqual((await door.call('GET', '/agent')).json.addresses, told)
    await door.call('GET', '/agent/card')
    assert.deepEqual(cards, [told])
  }
})

test('the executor gets an operation byte for byte with its proof', async (t) => {
  const parts = restComponents()
  const seen: unknown[] = []
  const door = await startDoor(t, {
    executor: {
      ...parts.executor,
      operate: async (operation, body, proof) => {
        seen.push([operation, Buffer.from(body).toString(), proof])
        return { ok: true, contact: { name: 'bob' } }
      },
    },
  })
  const cases = [
    ['/contacts/meet', 'contact_meet', `{"name":"bob","agent_id":"${MACHINE}","machine_id":"${MACHINE}","addresses":[]}`],
    ['/contacts/trust', 'contact_trust', '{ "level":"trusted",\n "contact":"bob" }'],
    ['/contacts/pin', 'contact_pin', `{"contact":"bob","machine_id":"${MACHINE}"}`],
    ['/contacts/unpin', 'contact_unpin', `{"contact":"bob","machine_id":"${MACHINE}"}`],
    ['/contacts/label', 'contact_label', '{"contact":"bob","labels":{"role":"db","site":null}}'],
    ['/contacts/remove', 'contact_remove', '{"contact":"b\\u00f6b"}'],
    ['/agent/revoke', 'identity_revoke', '{"machine_id":null}'],
    ['/agent/card/import', 'card_import', '{"card":"x0x://agent/AA","name":"bob","trust_level":"known"}'],
  ] as const
  for (const [path, operation, body] of cases) {
    const { status, json } = await door.call('POST', path, { body, headers: { [OPERATOR_PROOF_HEADER]: 'v1.proof' } })
    assert.equal(status, 200, path)
    assert.deepEqual(json, { ok: true, contact: { name: 'bob' } })
    assert.deepEqual(seen.pop(), [operation, body, 'v1.proof'])
  }
  await door.call('POST', '/contacts/remove', { body: '{"contact":"bob"}' })
  assert.deepEqual(seen.pop(), ['contact_remove', '{"contact":"bob"}', ''])
})

test('a refusal of the executor is the answer', async (t) => {
  const parts = restComponents()
  const refuse = async (): Promise<never> =>
    Promise.reject(new AppError('operator_proof_required', 'prove it', { data: { header: OPERATOR_PROOF_HEADER } }))
  const door = await startDoor(t, { executor: { ...parts.executor, operate: refuse } })
  const { status, json } = await door.call('POST', '/contacts/remove', { body: { contact: 'bob' } })
  assert.equal(status, 403)
  assert.deepEqual(json, { ok: false, error: 'operator_proof_required', message: 'prove it', data: { header: OPERATOR_PROOF_HEADER } })
})

test('a body with unknown or invalid fields is refused, and the answer names the field', async (t) => {
  const door = await startDoor(t)
  const cases: [string, unknown, RegExp][] = [
    ['/contacts/trust', { contact: 'bob', level: 'trusted', extra: 1 }, /extra: unknown key/],
    ['/contacts/trust', { contact: 'bob', level: 'best' }, /level: /],
    ['/contacts/pin', { contact: 'bob', machine_id: 'B'.repeat(64) }, /machine_id: .*hex/],
    ['/contacts/pin', { contact: '', machine_id: MACHINE }, /contact: /],
    ['/agent/revoke', {}, /machine_id: /],
    ['/exec/cancel', { request_id: 'x' }, /request_id: .*UUID/],
    ['/contacts/trust', { contact: 'bob', level: 7 }, /^level: expected one of blocked, unknown, known, trusted, not 7$/],
    ['/contacts/trust', { contact: 'bob' }, /^level: missing; expected one of blocked, unknown, known, trusted$/],
    ['/contacts/trust', { contact: 'bob', leve: 'known' }, /level: missing.*; leve: unknown key\. Did you mean level\?$/],
    ['/contacts/trust', {}, /^contact: missing; expected .*name of a contact; level: missing/],
    ['/contacts/remove', { contact: 'b'.repeat(65) }, /^contact: expected at most 64 characters, not "b{40}"… of 65 characters$/],
    ['/contacts/remove', { contact: '' }, /^contact: expected at least 1 character, not ""$/],
    ['/contacts/remove', { contact: {} }, /^contact: expected .*, not an object$/],
    ['/agent/revoke', {}, /^machine_id: missing; expected 64 lower-case hex characters, or null$/],
    ['/agent/revoke', { machine_id: 5 }, /^machine_id: expected 64 lower-case hex characters, or null, not 5$/],
    ['/agent/card/import', { card: null }, /^card: expected a string, not null$/],
    ['/exec/cancel', {}, /^request_id, fanout_id: give exactly one of the two$/],
    ['/exec/cancel', Object.fromEntries([...'abcdefg'].map((key) => [key.repeat(70), 1])), /a{64}…: unknown key; .*; 2 more$/],
    ['/exec/run', { agent: 'bob' }, /^argv: missing; expected a list of strings$/],
    ['/exec/run', { agent: 'bob', argv: 'id' }, /^argv: expected a list of strings, not "id"$/],
    ['/exec/run', { agent: 'bob', argv: ['id', 5] }, /^argv\[1\]: expected a string, not 5$/],
    ['/exec/run', { agent: 'bob', argv: ['\ud800'] }, /^argv\[0\]: not valid Unicode$/],
    ['/exec/run', { agent: 'bob', argv: ['id'], timeout_ms: '5' }, /^timeout_ms: expected a whole number of at least 1, not "5"$/],
    ['/exec/run', { agent: 'bob', argv: ['id'], timeout_ms: 0 }, /^timeout_ms: expected a whole number of at least 1, not 0$/],
    ['/exec/run', { agent: 'bob', argv: ['id'], timeout_ms: 1.5 }, /^timeout_ms: expected a whole number of at least 1, not 1\.5$/],
    [
      '/exec/run',
      { agent: 'bob', argv: ['id'], timeout_ms: 2 ** 53 },
      /^timeout_ms: expected a whole number .*at most 9007199254740991, not 90/,
    ],
    ['/exec/run', { agent: 'bob', argv: ['id'], clamp: 'yes' }, /^clamp: expected true or false, not "yes"$/],
    [
      '/exec/run',
      { agent: 'bob', argv: ['id'], stdin_sha256: ['x'] },
      /^stdin_sha256\[0\]: expected 64 lower-case hex characters, not "x"$/,
    ],
    ['/exec/run', { agent: 'bob', argv: ['id'], stdin_b64: [] }, /^stdin_b64: expected standard base64 with padding, not an empty list$/],
    ['/exec/run', 'null', /^body: expected a JSON object, not null$/],
    ['/exec/run', { agent: 'bob', argv: ['id'], stdin_len: 1 }, /only with a body of type/],
    ['/agents/connect', {}, /exactly one/],
    ['/agents/connect', { agent_id: OTHER_AGENT, agent: 'bob' }, /exactly one/],
    ['/agents/connect', [], /body: /],
    ['/agents/connect', 'null', /body: /],
    ['/direct/send', { agent: 'bob', payload_b64: 'a' }, /payload_b64: not base64/],
    ['/direct/send', { agent: 'bob', payload_b64: '', content_type: '\ud800' }, /^content_type: not valid Unicode, or more than 64 bytes$/],
    [
      '/direct/send',
      { agent: 'bob', payload_b64: '', content_type: 'ü'.repeat(33) },
      /^content_type: not valid Unicode, or more than 64 bytes$/,
    ],
    ['/direct/send', JSON.parse('{"agent":"bob","payload_b64":"","__proto__":{}}'), /__proto__: unknown key/],
  ]
  for (const [path, body, message] of cases) {
    const { status, json } = await door.call('POST', path, { body })
    assert.equal(status, 400, `${path} ${JSON.stringify(body)}`)
    assert.equal(json.error, 'bad_request')
    assert.match(json.message, message)
  }
})

test('a body that is not JSON in UTF-8 is refused', async (t) => {
  const door = await startDoor(t)
  for (const body of ['', '{', '{"contact":"bob"} x', Buffer.from([0x7b, 0xff, 0x7d])]) {
    assert.equal((await door.call('POST', '/contacts/remove', { body })).status, 400, String(body))
  }
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/x-ndjson', undefined]) {
    const { status } = await door.call('POST', '/contacts/remove', { body: '{"contact":"bob"}', headers: { 'content-type': type } })
    assert.equal(status, 400, type)
  }
})

test('a body over the limit of its route gets too_large', async (t) => {
  const door = await startDoor(t)
  const { status, json } = await door.call('POST', '/contacts/remove', { body: { contact: 'x'.repeat(70_000) } })
  assert.equal(status, 413)
  assert.equal(json.error, 'too_large')
})

test('an internal failure is logged, but the answer hides its details', async (t) => {
  const parts = restComponents()
  const door = await startDoor(t, {
    executor: { ...parts.executor, query: async () => Promise.reject(new Error('the secret of the house')) },
  })
  const { status, json, text } = await door.call('GET', '/contacts')
  assert.equal(status, 500)
  assert.equal(json.error, 'internal')
  assert.doesNotMatch(text, /secret/)
})

test('contacts, peers, connect and diagnostics return the data of their sources', async (t) => {
  const parts = restComponents()
  const door = await startDoor(t, {
    executor: { ...parts.executor, query: async (what) => (what === 'contacts' ? [{ name: 'bob' }] : { enabled: true }) },
    links: { list: () => [], link: async (agentId) => ({ agentId, machineId: MACHINE, decision: 'accept' }) },
    directory: { ...restComponents().directory, resolve: (agent) => (agent === 'bob' ? OTHER_AGENT : agent) },
  })
  assert.deepEqual((await door.call('GET', '/contacts')).json, { ok: true, contacts: [{ name: 'bob' }], groups: [] })
  const mesh = { heard: 0, known: 0, standing: 0, connected: 0 }
  assert.deepEqual((await door.call('GET', '/peers')).json, { ok: true, peers: [], mesh })
  const connected = await door.call('POST', '/agents/connect', { body: { agent: 'bob' } })
  assert.deepEqual(connected.json, { ok: true, agent_id: OTHER_AGENT, machine_id: MACHINE, decision: 'accept' })
  assert.deepEqual((await door.call('GET', '/diagnostics/exec')).json, { ok: true, enabled: true, requester: { runs_requested: 0 } })
  assert.deepEqual((await door.call('GET', '/diagnostics/dm')).json, { ok: true, links_opened: 0, links: [] })
  assert.deepEqual((await door.call('GET', '/diagnostics/mesh')).json, { ok: true, listening: true })
})
