import { posix } from 'node:path'
import { shellWord } from '../../../base/format.ts'
import { MANY_HOSTS } from '../../../cli/plain-exec.ts'
import { isPlainPath } from '../../../protocol/file-command.ts'
import { usageError } from '../failure.ts'

/** A file or directory on an agent. */
export interface RemotePlace {
  readonly kind: 'remote'
  readonly host: string
  /** Absolute, without `.`, `..` and a slash at its end. */
  readonly path: string
  /** As typed, it ends with a slash, so it must be a directory. */
  readonly slash: boolean
}

/** A file or directory of this machine. */
export interface LocalPlace {
  readonly kind: 'local'
  readonly path: string
  readonly slash: boolean
}

/** Standard input or output. */
export interface StreamPlace {
  readonly kind: 'stream'
}

type Place = RemotePlace | LocalPlace | StreamPlace

/** What a command line copies. All places of one side are on the same agent. */
export type CopyOrder = UploadOrder | DownloadOrder

export interface UploadOrder {
  readonly direction: 'upload'
  /** A host, or an expression for the hosts of a fan-out. */
  readonly host: string
  readonly sources: readonly (LocalPlace | StreamPlace)[]
  readonly destination: RemotePlace
  readonly isFanout: boolean
}

export interface DownloadOrder {
  readonly direction: 'download'
  readonly host: string
  readonly sources: readonly RemotePlace[]
  readonly destination: LocalPlace | StreamPlace
}

interface OrderOptions {
  readonly recursive: boolean
  readonly json: boolean
  /** Whether an option of a fan-out is given. */
  readonly fanout: boolean
}

const UPLOAD_EXAMPLE = 'Try: x0x cp report.pdf bob:/srv/inbox/'
const DOWNLOAD_EXAMPLE = 'Try: x0x cp bob:/var/log/syslog .'

const endsAsDirectory = (path: string): boolean => /(?:^|\/)\.{0,2}$/.test(path)

const remotePlace = (host: string, path: string): RemotePlace => {
  const word = `${host}:${path}`
  if (host === '') throw usageError(`${JSON.stringify(word)}: the host is missing before ":"`, `Try: x0x ls bob:${path || '/srv'}`)
  if (!path.startsWith('/'))
    throw usageError(`${word}: paths on an agent are absolute`, `Try: ${shellWord(`${host}:/${path.replace(/^~\/?/, 'PATH/')}`)}`)
  const plain = posix.normalize(path).replace(/(.)\/$/, '$1')
  if (!isPlainPath(plain)) throw usageError(`${word}: the path is too long, or has a character that no path has`)
  return { kind: 'remote', host, path: plain, slash: endsAsDirectory(path) }
}

/** `HOST:/PATH` has a colon before its first slash, as in scp. */
const placeOf = (word: string): Place => {
  if (word === '-') return { kind: 'stream' }
  if (word === '') throw usageError('a path is empty')
  const [, host, path] = /^([^/:]*):(.*)$/s.exec(word) ?? []
  return host === undefined || path === undefined ? { kind: 'local', path: word, slash: endsAsDirectory(word) } : remotePlace(host, path)
}

const isRemote = (place: Place): place is RemotePlace => place.kind === 'remote'
const isStream = (place: Place): place is StreamPlace => place.kind === 'stream'

/** The place that `x0x ls` lists. Throws `bad_request`. */
export const listedPlace = (word: string): RemotePlace => {
  const place = placeOf(word)
  if (isRemote(place) && MANY_HOSTS.test(place.host))
    throw usageError(`${JSON.stringify(place.host)} is not the name of one host: x0x ls lists files of one host`)
  if (isRemote(place)) return place
  throw usageError(`${JSON.stringify(word)} is not HOST:/PATH`, 'Try: x0x ls bob:/srv')
}

const downloadOf = (sources: readonly RemotePlace[], destination: LocalPlace | StreamPlace, { fanout }: OrderOptions): CopyOrder => {
  const [{ host, path }] = sources as [RemotePlace]
  const many = sources.find((source) => MANY_HOSTS.test(source.host))
  if (many !== undefined)
    throw usageError(
      `${JSON.stringify(many.host)} is not the name of one host: only uploads go to several hosts, a download is from one`,
      `Try: x0x cp ${shellWord(`HOST:${path}`)} .   (once for each host)`,
    )
  if (fanout) throw usageError('a download is from one host, so it has no options of a fan-out')
  const other = sources.find((source) => source.host !== host)
  if (other !== undefined)
    throw usageError(`the sources are on ${host} and ${other.host}: x0x cp copies from one host`, 'Use one x0x cp for each host')
  if (isStream(destination) && sources.length > 1) throw usageError('only one file can be copied to "-"')
  return { direction: 'download', host, sources, destination }
}

const uploadOf = (sources: readonly (LocalPlace | StreamPlace)[], destination: RemotePlace, { fanout }: OrderOptions): CopyOrder => {
  const { host, path } = destination
  const isFanout = fanout || MANY_HOSTS.test(host)
  if (isFanout && sources.some(isStream))
    throw usageError('standard input cannot be copied to several hosts', `Try: x0x cp FILE ${shellWord(`${host}:${path}`)}`)
  if (sources.some(isStream) && (sources.length > 1 || destination.slash))
    throw usageError('standard input becomes one file: name it', `Try: x0x cp - ${shellWord(`${host}:${posix.join(path, 'NAME')}`)}`)
  return { direction: 'upload', host, sources, destination, isFanout }
}

/** Reads the words of `x0x cp`. Throws `bad_request`. */
export const copyOrderOf = (words: readonly string[], options: OrderOptions): CopyOrder => {
  if (words.length < 2) throw usageError('give a source and a destination', `${UPLOAD_EXAMPLE}\n${DOWNLOAD_EXAMPLE}`)
  const { recursive, json } = options
  const places = words.map(placeOf)
  const destination = places.at(-1)!
  const sources = places.slice(0, -1)
  if (places.some(isStream)) {
    if (recursive) throw usageError('"-" cannot be used with --recursive')
    if (json && isStream(destination)) throw usageError('--json cannot be used with "-" as the destination')
  }
  const local = sources.filter((source) => !isRemote(source))
  if (isRemote(destination)) {
    if (local.length === sources.length) return uploadOf(local, destination, options)
    throw usageError('both sides are on agents: copy to this machine first', DOWNLOAD_EXAMPLE)
  }
  if (local.length === 0) return downloadOf(sources.filter(isRemote), destination, options)
  const problem = local.length < sources.length ? 'some sources are on this machine, like the destination' : 'one side must be HOST:/PATH'
  throw usageError(problem, `${UPLOAD_EXAMPLE}\n${DOWNLOAD_EXAMPLE}`)
}
