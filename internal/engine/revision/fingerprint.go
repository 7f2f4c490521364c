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

// fingerprintClaim has the members and the order in which Kubernetes 1.32 encodes a claim with nothing but
// name and spec.
type fingerprintClaim struct {
	Metadata struct {
		Name              string  `json:"name,omitempty"`
		CreationTimestamp *string `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec   corev1.PersistentVolumeClaimSpec `json:"spec"`
	Status struct{}                         `json:"status"`
}

// Fingerprint returns the decimal fingerprint of claim templates, empty for none, as the reference computes
// it (IPU-045, IPU-051). Their order does not matter; only name and spec count.
func Fingerprint(claims []corev1.PersistentVolumeClaim) (string, error) {
	if len(claims) == 0 {
		return "", nil
	}
	list := make([]fingerprintClaim, len(claims))
	for i := range claims {
		list[i].Metadata.Name = claims[i].Name
		list[i].Spec = claims[i].Spec
	}
	slices.SortStableFunc(list, func(a, b fingerprintClaim) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	encoded, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("encoding claim templates: %w", err)
	}
	return HashBytes(encoded), nil
}

// HashBytes hashes bytes the way the reference and the node daemon do: FNV-1a 32 bit over their textual
// rendering, decimal (IPU-051).
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
