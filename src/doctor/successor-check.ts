import { entriesOfBefore, newKeyLine, newKeyText } from '../policy/mesh/authorize.ts'
import { inspectAcl } from '../policy/mesh/load-acl.ts'
import { Contacts } from '../trust/contacts.ts'
import type { DaemonConfig } from '../config/config.ts'
import { warn, type Finding } from './findings.ts'

/** Entries of the ACL for keys that a contact had before; what is wrong with either file has a line of its own. */
export const checkSuccessors = async ({ exec_acl, paths }: DaemonConfig): Promise<Finding[]> => {
  const contacts = new Contacts({ path: paths.contacts })
  const { acl } = await inspectAcl(exec_acl)
  if (
    acl === null ||
    !(await contacts.load().then(
      () => true,
      () => false,
    ))
  )
    return []
  return contacts
    .list()
    .flatMap((contact) =>
      entriesOfBefore(acl, contact).map((entry) =>
        warn('acl', `${exec_acl}: ${newKeyText(entry)}: ${contact.name}`, `write there: ${newKeyLine(contact)}`),
      ),
    )
}
