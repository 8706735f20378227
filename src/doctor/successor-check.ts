import type { DaemonConfig } from '../config/config.ts'
import { entriesOfBefore, newKeyLine, newKeyText } from '../policy/mesh/authorize.ts'
import { inspectAcl } from '../policy/mesh/load-acl.ts'
import { Contacts } from '../trust/contacts.ts'
import { type Finding, warn } from './findings.ts'

/** Entries of an ACL for keys that a contact had before, each with the line to write; what is wrong with either file is told elsewhere. */
export const successorDoubts = async (
  aclPath: string,
  contactsPath: string,
): Promise<{ readonly text: string; readonly remedy: string }[]> => {
  const contacts = new Contacts({ path: contactsPath })
  const { acl } = await inspectAcl(aclPath)
  const isRead = await contacts.load().then(
    () => true,
    () => false,
  )
  if (acl === null || !isRead) return []
  return contacts.list().flatMap((contact) =>
    entriesOfBefore(acl, contact).map((entry) => ({
      text: `${aclPath}: ${newKeyText(entry)}: ${contact.name}`,
      remedy: `write there: ${newKeyLine(contact)}`,
    })),
  )
}

export const checkSuccessors = async ({ exec_acl, paths }: DaemonConfig): Promise<Finding[]> =>
  (await successorDoubts(exec_acl, paths.contacts)).map(({ text, remedy }) => warn('acl', text, remedy))
