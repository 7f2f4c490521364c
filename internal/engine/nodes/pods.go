package nodes

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
)

// suffix says how the end of a pod's name looks: so long that among ten thousand nodes hardly two have the
// same, of letters and digits that make no words.
const suffixLength, suffixLetters = 8, "bcdfghjklmnpqrstvwxz2456789"

// PodName is the name of the nth pod of an owner for a node. Long names of owners are cut, so that the name
// can be a host name. It is made of the node's name, so that two managers that both find the node empty
// create the same pod.
func PodName(owner, uid, node string, n int) string {
	sum, suffix := Hash(uid+"/"+node+"/"+strconv.Itoa(n)), make([]byte, suffixLength)
	for i := range suffix {
		suffix[i] = suffixLetters[sum%uint64(len(suffixLetters))]
		sum /= uint64(len(suffixLetters))
	}
	return strings.TrimRight(owner[:min(len(owner), 63-1-suffixLength)], ".-") + "-" + string(suffix)
}

// Hash is a hash of a text, which stays the same for ever.
func Hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// Pin makes the required node affinity of a pod, whose spec is a document, that for one node; what else it
// has stays (ADS-114, BJ-041).
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

// Document is a value of the API that holds nothing but texts and numbers as a JSON document.
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
