export type RouteCategory = 'status' | 'identity' | 'contacts' | 'mesh' | 'direct' | 'exec' | 'diagnostics'

/** What the outside knows of one route. */
export interface Route {
  readonly method: 'GET' | 'POST'
  readonly path: string
  /** The command that uses it; null where none does. */
  readonly cli: string | null
  readonly description: string
  readonly category: RouteCategory
}

/**
 * Every route of the REST door, once: `GET /routes` and the OpenAPI document are made from it, the
 * door refuses to start when it has a handler without a row or a row without a handler, and
 * `docs/rest.md` has a line for each.
 */
export const ROUTES = [
  { method: 'GET', path: '/health', cli: null, description: 'Whether the daemon works; needs no token', category: 'status' },
  { method: 'GET', path: '/routes', cli: 'x0x routes', description: 'This list', category: 'status' },
  { method: 'GET', path: '/openapi.json', cli: null, description: 'OpenAPI 3.1 document of this door', category: 'status' },
  { method: 'GET', path: '/agent', cli: 'x0x id', description: 'Who this daemon is', category: 'identity' },
  { method: 'GET', path: '/agent/card', cli: 'x0x card', description: 'A freshly signed card of this agent', category: 'identity' },
  {
    method: 'POST',
    path: '/agent/card/import',
    cli: 'x0x contacts import',
    description: "Verify another agent's card and keep it as a contact",
    category: 'contacts',
  },
  {
    method: 'POST',
    path: '/agent/revoke',
    cli: 'x0x id revoke',
    description: 'Revoke this agent, or its presence on one machine, for ever',
    category: 'identity',
  },
  { method: 'GET', path: '/contacts', cli: 'x0x contacts list', description: 'Contacts, their trust and their pins', category: 'contacts' },
  {
    method: 'POST',
    path: '/contacts/trust',
    cli: 'x0x contacts trust',
    description: "Set a contact's trust level",
    category: 'contacts',
  },
  { method: 'POST', path: '/contacts/pin', cli: 'x0x contacts pin', description: 'Pin a contact to a machine', category: 'contacts' },
  { method: 'POST', path: '/contacts/unpin', cli: 'x0x contacts unpin', description: 'Remove a pin', category: 'contacts' },
  { method: 'POST', path: '/contacts/remove', cli: 'x0x contacts remove', description: 'Forget a contact', category: 'contacts' },
  { method: 'GET', path: '/peers', cli: 'x0x peers', description: 'Connected and discovered peers', category: 'mesh' },
  { method: 'POST', path: '/agents/connect', cli: null, description: 'Dial an agent and prove the link', category: 'mesh' },
  { method: 'POST', path: '/direct/send', cli: 'x0x direct send', description: 'Send a direct message', category: 'direct' },
  {
    method: 'GET',
    path: '/direct/events',
    cli: 'x0x direct listen',
    description: 'Direct messages as they arrive (server-sent events)',
    category: 'direct',
  },
  { method: 'POST', path: '/exec/run', cli: 'x0x exec', description: 'Run a command on an agent', category: 'exec' },
  {
    method: 'POST',
    path: '/exec/cancel',
    cli: 'x0x exec cancel',
    description: 'Cancel a run that this daemon asked for',
    category: 'exec',
  },
  {
    method: 'GET',
    path: '/exec/sessions',
    cli: 'x0x exec sessions',
    description: 'Runs that this daemon asked for and that have not ended',
    category: 'exec',
  },
  {
    method: 'GET',
    path: '/diagnostics/exec',
    cli: 'x0x diagnostics exec',
    description: 'Counters of the executing side and of the asking side',
    category: 'diagnostics',
  },
  {
    method: 'GET',
    path: '/diagnostics/dm',
    cli: 'x0x diagnostics dm',
    description: 'Counters of links and messages',
    category: 'diagnostics',
  },
  {
    method: 'GET',
    path: '/diagnostics/mesh',
    cli: 'x0x diagnostics mesh',
    description: 'Listening addresses, connections, discovery',
    category: 'diagnostics',
  },
] as const satisfies readonly Route[]

type KeyOf<R> = R extends Route ? `${R['method']} ${R['path']}` : never
export type RouteKey = KeyOf<(typeof ROUTES)[number]>
