/**
 * What is bundled for the Node of whoever calls may be asked to run on 20, and esbuild brings only syntax down to that. What
 * our sources use of later ones is made here where it is missing; a test takes it away and runs.
 */
export const LATER_BUILTINS = `Promise.withResolvers??=function(){let resolve,reject;const promise=new this((a,b)=>{resolve=a;reject=b});return{promise,resolve,reject}};
Map.groupBy??=(items,keyOf)=>{const groups=new Map();let at=0;for(const item of items){const key=keyOf(item,at++),group=groups.get(key);group===undefined?groups.set(key,[item]):group.push(item)}return groups};`
