package revision

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// fingerprintClaim has the fields, in the same order, that Kubernetes 1.32 encodes for a claim with only a
// name and a spec.
type fingerprintClaim struct {
	Metadata struct {
		Name              string  `json:"name,omitempty"`
		CreationTimestamp *string `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec   corev1.PersistentVolumeClaimSpec `json:"spec"`
	Status struct{}                         `json:"status"`
}

// Fingerprint returns the decimal fingerprint of claim templates as OpenKruise computes it, empty if there
// are none (IPU-045, IPU-051). It depends only on their names and specs, not on their order.
func Fingerprint(claims []corev1.PersistentVolumeClaim) (string, error) {
	if len(claims) == 0 {
		return "", nil
	}

	list := make([]fingerprintClaim, len(claims))
	for i := range claims {
		list[i].Metadata.Name = claims[i].Name
		list[i].Spec = claims[i].Spec
	}

	slices.SortStableFunc(list,
		func(a, b fingerprintClaim) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	encoded, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("encoding claim templates: %w", err)
	}
	return HashBytes(encoded), nil
}

// HashBytes hashes bytes as OpenKruise and the node daemon do: the decimal FNV-1a 32 bit hash of their
// textual form (IPU-051).
func HashBytes(encoded []byte) string {
	sum := fnv.New32a()
	sum.Write([]byte("([]uint8)["))
	for i, b := range encoded {
		if i > 0 {
			sum.Write([]byte{' '})
		}
		sum.Write(strconv.AppendUint(nil, uint64(b), 10))
	}
	sum.Write([]byte{']'})
	return strconv.FormatUint(uint64(sum.Sum32()), 10)
}
