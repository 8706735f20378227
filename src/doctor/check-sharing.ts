import { closedToGroup, type Sharing } from '../config/group-sharing.ts'
import { warn, type Finding } from './findings.ts'

export const checkSharing = async ({ share_with_group, paths }: Sharing): Promise<Finding[]> => {
  if (!share_with_group) return []
  const closed = (await closedToGroup(paths)).map(([path]) => path)
  if (closed.length === 0) return []
  return [warn('group', `share_with_group = true, but the group may not read ${closed.join(', ')}`, 'restart x0xd, which opens them')]
}
