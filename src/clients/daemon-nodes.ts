import type { NodeDirectory } from '../executor/local/exec-place.ts'
import type { KnownNode } from '../executor/local/select-node.ts'
import type { ContactsAnswer, PeersAnswer } from '../protocol/api-answers.ts'
import type { LocalApi } from './local-api.ts'

/** The agents of the mesh, as this host's daemon knows them: contacts, and what has been heard of since it began. */
export class DaemonNodes implements NodeDirectory {
  readonly #daemon: () => LocalApi

  constructor(components: { readonly daemon: () => LocalApi }) {
    this.#daemon = components.daemon
  }

  async nodes(signal: AbortSignal | null): Promise<readonly KnownNode[]> {
    const api = this.#daemon()
    const ask = async <T>(path: string): Promise<T> => api.json<T>({ method: 'GET', path, ...(signal === null ? {} : { signal }) })
    const [{ contacts }, { peers }] = await Promise.all([ask<ContactsAnswer>('/contacts'), ask<PeersAnswer>('/peers')])
    const ids = new Set([...contacts, ...peers].flatMap(({ agent_id }) => agent_id ?? []))
    return [...ids].map((agent_id) => {
      const contact = contacts.find((one) => one.agent_id === agent_id)
      const seen = peers.filter((one) => one.agent_id === agent_id)
      return {
        agent_id,
        contact: contact?.name ?? null,
        names: seen.flatMap(({ name }) => name ?? []),
        addresses: [...(contact?.addresses ?? []), ...seen.flatMap(({ addresses }) => addresses)],
      }
    })
  }
}
