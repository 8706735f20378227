import { basename, dirname, join } from 'node:path'
import { AppError, isAppError } from '../base/errors.ts'
import { ensurePrivateDir, readPrivateFile } from '../base/file-permissions.ts'
import { createFileAtomic, laterVersion, writeFileAtomic } from '../base/files.ts'
import { fromHex, toHex } from '../protocol/ids.ts'
import { SEED_BYTES } from '../protocol/limits/wire.ts'
import { randomBytes } from './hash.ts'

/** Permissions of a key directory. A system daemon shares its directory with its group, which reads the token and the socket. */
const PRIVATE_DIR = 0o700

export interface SeedFile {
  readonly path: string
  /** First line of the file, with kind and version. Null if the file has only 64 hex digits. */
  readonly header: string | null
  /** If true, the mode is 0640 instead of 0600. A system daemon's operators read its `operator.key` by their group. */
  readonly groupMayRead?: boolean
}

/**
 * The 32 secret bytes of a file, which is created on first use. The file appears complete and with its permissions. If two processes start
 * at once, one creates it and both read the same. Throws `loose_permissions` or `bad_key_file`. An existing file is never replaced.
 */
export const loadOrCreateSeed = async (file: SeedFile, dirMode: number = PRIVATE_DIR): Promise<Uint8Array> => {
  await ensurePrivateDir(dirname(file.path), dirMode)
  try {
    return await loadSeed(file)
  } catch (error) {
    if (!isAppError(error, 'not_found')) throw error
  }
  await createFileAtomic(file.path, contentOf(file, randomBytes(SEED_BYTES)), modeOf(file))
  return await loadSeed(file)
}

/** The file from the service manager, which owns it, in place of that of the data directory. */
const givenFile = (file: SeedFile, credentials: string): SeedFile => ({
  ...file,
  path: join(credentials, basename(file.path)),
  groupMayRead: true,
})

/**
 * As `loadOrCreateSeed`, but prefers a file of this name in the unit's secrets directory `credentials` (systemd.exec(5)). Then no file is
 * created. Throws `conflict` if the data directory has one too, because the intended one is unknown.
 */
export const loadGivenOrCreateSeed = async (file: SeedFile, credentials: string | null, dirMode?: number): Promise<Uint8Array> => {
  const given = credentials === null ? null : await seedOrNull(givenFile(file, credentials))
  if (given === null) return loadOrCreateSeed(file, dirMode)
  if ((await seedOrNull(file)) === null) return given
  const text = `${basename(file.path)} is a credential of this unit, and ${file.path} exists too: move the file away, or remove the credential`
  throw new AppError('conflict', text, { data: { file: file.path } })
}

/** Path of the file that `loadGivenOrCreateSeed` reads. */
export const seedPath = async (file: SeedFile, credentials: string | null): Promise<string> => {
  const given = credentials === null ? null : givenFile(file, credentials)
  return given !== null && (await seedOrNull(given)) !== null ? given.path : file.path
}

const seedOrNull = async (file: SeedFile): Promise<Uint8Array | null> => {
  try {
    return await loadSeed(file)
  } catch (error) {
    if (isAppError(error, 'not_found')) return null
    throw error
  }
}

/** Replaces the secret atomically. */
export const renewSeed = async (file: SeedFile, seed = randomBytes(SEED_BYTES)): Promise<Uint8Array> => {
  await writeFileAtomic(file.path, contentOf(file, seed), modeOf(file))
  return seed
}

/** The seed of an existing file. Throws `not_found` if absent. */
export const loadSeed = async (file: SeedFile): Promise<Uint8Array> => {
  const text = (await readPrivateFile(file.path, { groupMayRead: file.groupMayRead ?? false })).toString('latin1')
  const head = headOf(file)
  const seed = text.slice(head.length, -1)
  if (text !== `${head}${seed}\n` || !/^[0-9a-f]{64}$/.test(seed)) {
    const later = laterThan(file.header, text)
    if (later !== null) throw new AppError('bad_key_file', `${file.path}: ${later}`, { data: { file: file.path } })
    throw new AppError('bad_key_file', `${file.path} is not a ${formOf(file)}`, { data: { file: file.path } })
  }
  return fromHex(seed)
}

/** The right form, and how to repair the file. A key is an identity. Any other secret serves only programs of this machine, so a new one does. */
const formOf = ({ header }: SeedFile): string =>
  header === null
    ? 'secret of x0x (64 hex digits); delete it, and the next start makes a new one'
    : `key file ("${header}", then 64 hex digits); restore it from a backup`

const HEADER = /^(x0x-[a-z-]+-v)(\d+)$/

/** Hint about a file of a later version, or null. A secret without a header may have one in a later version. */
const laterThan = (header: string | null, text: string): string | null => {
  const [, kind, found = 0] = HEADER.exec(text.split('\n', 1)[0] ?? '') ?? []
  const [, ours, known = null] = HEADER.exec(header ?? '') ?? []
  const isOurs = kind !== undefined && (header === null || kind === ours)
  return isOurs && Number(found) > Number(known) ? laterVersion(Number(found), known === null ? null : Number(known)) : null
}

const contentOf = (file: SeedFile, seed: Uint8Array): string => `${headOf(file)}${toHex(seed)}\n`

const modeOf = ({ groupMayRead = false }: SeedFile): number => (groupMayRead ? 0o640 : 0o600)

const headOf = ({ header }: SeedFile): string => (header === null ? '' : `${header}\n`)
