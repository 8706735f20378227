import { counted } from '../base/counted.ts'

/** How much of the mesh a daemon sees. `standing`: how many connections are to stand, or how many of them do, with their noun. */
export const meshSizeText = (
  { heard, known, connected }: { readonly heard: number; readonly known: number; readonly connected: number },
  standing: string,
): string => `${counted(heard, 'machine')} heard of, ${counted(known, 'agent')} known, ${standing}, ${connected} connected`
