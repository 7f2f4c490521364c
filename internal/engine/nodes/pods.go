package nodes

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
)

// These define the suffix of a pod's name. It is long enough that hardly two of ten thousand nodes get the
// same, and its characters form no words.
const suffixLength, suffixLetters = 8, "bcdfghjklmnpqrstvwxz2456789"

// PodName returns the name of the nth pod of an owner for a node. Long owner names are truncated, so that the
// name is a valid host name. The suffix is derived from the node's name, so that two managers that both find
// the node empty create the same pod.
func PodName(owner, uid, node string, n int) string {
	sum, suffix := Hash(uid+"/"+node+"/"+strconv.Itoa(n)), make([]byte, suffixLength)
	for i := range suffix {
		suffix[i] = suffixLetters[sum%uint64(len(suffixLetters))]
		sum /= uint64(len(suffixLetters))
	}
	return strings.TrimRight(owner[:min(len(owner), 63-1-suffixLength)], ".-") + "-" + string(suffix)
}

// Hash returns a hash of a text that never changes between releases.
func Hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// Pin sets the required node affinity in a pod spec, which is a document, to that one node. The rest of the
// affinity is kept (ADS-114, BJ-041).
func Pin(spec map[string]any, node string) {
	affinity, _ := spec["affinity"].(map[string]any)
	affinity = clone(affinity)
	ofNode, _ := affinity["nodeAffinity"].(map[string]any)
	ofNode = clone(ofNode)
	ofNode["requiredDuringSchedulingIgnoredDuringExecution"] = Document(Only(node))
	affinity["nodeAffinity"] = ofNode
	spec["affinity"] = affinity
}

func clone(object map[string]any) map[string]any {
	if object == nil {
		return map[string]any{}
	}
	return maps.Clone(object)
}

// Document returns an API value that consists only of strings and numbers as a JSON document.
func Document(value any) (object map[string]any) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", value, err))
	}
	return object
}
