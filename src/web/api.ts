import { isTable } from '../protocol/json-table.ts'
import { PAGE_PROOF_HEADER, type PageEvent } from '../protocol/page.ts'

/** Stored for this tab only. No other origin, and so no other port of this host, can read it. */
const PROOF_KEY = 'x0x-page-proof'

export class CallError extends Error {
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

export const keepProof = (proof: string): void => sessionStorage.setItem(PROOF_KEY, proof)

export const forgetProof = (): void => sessionStorage.removeItem(PROOF_KEY)

const post = async (path: string, body: object, signal?: AbortSignal): Promise<Response> =>
  fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', [PAGE_PROOF_HEADER]: sessionStorage.getItem(PROOF_KEY) ?? '' },
    body: JSON.stringify(body),
    redirect: 'error',
    ...(signal && { signal }),
  }).catch((error: unknown) => {
    throw new CallError('gone', signal?.aborted === true ? 'given up' : `x0x ui does not answer: ${String(error)}`)
  })

const errorOf = async (response: Response): Promise<CallError> => {
  const body: unknown = await response.json().catch(() => null)
  const said = isTable(body) ? body : {}
  return new CallError(String(said['error'] ?? 'internal'), String(said['message'] ?? `status ${response.status}`))
}

/** Calls the program that serves the page. Throws a `CallError`. */
export const call = async <T>(name: string, body: object = {}, signal?: AbortSignal): Promise<T> => {
  const response = await post(`/api/${name}`, body, signal)
  if (!response.ok) throw await errorOf(response)
  return (await response.json()) as T
}

/** Exchanges the link's code for a session. Its cookie is not readable by scripts. */
export const signIn = async (code: string): Promise<void> => {
  const response = await post('/sign-in', { code })
  if (!response.ok) throw await errorOf(response)
  keepProof(String(((await response.json()) as { proof: unknown }).proof))
}

/** Calls `tell` for each line of the stream and resolves at its end. Throws a `CallError` if it cannot start. */
export const follow = async (tell: (news: PageEvent) => void, signal: AbortSignal): Promise<void> => {
  const response = await post('/api/follow', {}, signal)
  if (!response.ok || response.body === null) throw await errorOf(response)
  let rest = ''
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) tell(JSON.parse(line) as PageEvent)
  }
}
