import { readFile } from 'node:fs/promises'
import { AppError } from '../../base/errors.ts'
import type { DataPaths } from '../../clients/paths.ts'

/** Files whose content is nobody's but their owner's. */
const SECRET_FILES = ['agentKey', 'machineKey', 'operatorKey', 'apiToken', 'metricsToken'] as const satisfies readonly (keyof DataPaths)[]
const HEX_KEY = /[0-9a-f]{32,}/g
/** The token of the desk's socket stands in the store of approvals. */
const STORE_TOKEN = /"token"\s*:\s*"([^"]{16,})"/g

/** Every form in which a secret of this installation might be written. What cannot be read is no secret that we could tell. */
export const secretsOf = async (paths: DataPaths): Promise<string[]> => {
  const texts = await Promise.all(SECRET_FILES.map(async (name) => readFile(paths[name], 'latin1').catch(() => '')))
  const store = await readFile(paths.approvals, 'utf8').catch(() => '')
  const hex = texts.flatMap((text) => text.match(HEX_KEY) ?? [])
  const bytes = hex.map((key) => Buffer.from(key, 'hex'))
  const encoded = bytes.flatMap((key) => [key.toString('base64').replace(/=+$/, ''), key.toString('base64url')])
  return [...hex, ...encoded, ...[...store.matchAll(STORE_TOKEN)].map(([, token = '']) => token)]
}

/** The last look before anything is written. */
export const assertWithout = (text: string, secrets: readonly string[]): void => {
  if (secrets.some((secret) => text.includes(secret)))
    throw new AppError('internal', 'a secret of this installation would stand in the bundle, so it was not written')
}
