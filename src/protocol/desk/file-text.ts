import { shownToken } from '../../base/visible-text.ts'
import type { ApprovalRequest, RequestedFile } from './approval-request.ts'

const UNITS = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'] as const

/** Such as `512 bytes`, or `1.5 MiB, 1572864 bytes`. */
const sizeText = (bytes: number): string => {
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)))
  return power === 0 ? `${bytes} bytes` : `${(bytes / 1024 ** power).toFixed(1)} ${UNITS[power]}, ${bytes} bytes`
}

const contentText = ({ size, sha256 }: RequestedFile): string => `${sizeText(size ?? 0)}${sha256 === null ? '' : `, SHA-256 ${sha256}`}`

const presentText = ({ present }: RequestedFile): string => (present === null ? '' : `${sizeText(present.size)}, changed ${present.mtime}`)

/** Owner and mode of a new file or directory. */
const rightsText = ({ mode, owner }: RequestedFile): string =>
  `with mode ${mode ?? 'unknown'}, owned by ${owner === null ? 'the user of x0xd' : shownToken(owner)}`

const placeText = ({ path, leads_to }: RequestedFile): string =>
  `${shownToken(path)}${leads_to === null ? '' : `, which leads to ${shownToken(leads_to)},`}`

const actionText = (file: RequestedFile): string => {
  switch (file.action) {
    case 'read':
      return `read ${placeText(file)} (${presentText(file)})`
    case 'write':
      return file.present === null
        ? `write ${placeText(file)} (${contentText(file)}), a new file ${rightsText(file)}`
        : `write ${placeText(file)} (${contentText(file)}), which replaces the present file (${presentText(file)}) and keeps its owner and mode`
    case 'append':
      return `append to ${placeText(file)} (${contentText(file)}), which has ${presentText(file)}`
    case 'mkdir':
      return `create the directory ${placeText(file)} ${rightsText(file)}`
  }
}

/** A file command in words, such as `read "/srv/x" (5 bytes, changed …)`, on one line. Names in it cannot control a terminal or imitate another fact. */
export const fileText = (file: RequestedFile): string => {
  const above = file.creates.map(shownToken).join(', ')
  return `${actionText(file)}${above === '' ? '' : `, and create ${above}`}`
}

/** The name of the requester in a sentence. */
export const requesterText = ({ asker }: Pick<ApprovalRequest, 'asker'>): string => {
  if (asker.kind === 'local') return shownToken(asker.label)
  return asker.name === null ? `agent ${asker.agent_id.slice(0, 12)}…` : shownToken(asker.name)
}

/** Names of files in the request. */
export const fileNames = ({ path, leads_to, creates }: RequestedFile): readonly string[] => [
  path,
  ...(leads_to === null ? [] : [leads_to]),
  ...creates,
]
