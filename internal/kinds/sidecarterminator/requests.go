package sidecarterminator

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/engine/seconds"
)

const (
	prefix = "sidecar-termination-" // JST-032
	ignore = "-ignore"              // JST-033

	// The first pause after a request that left a sidecar running, and the longest; it doubles in between.
	firstPause, longestPause = 10 * time.Second, 5 * time.Minute
	// keep is for how long a finished request stays, in seconds: longer than any pause, so that the number of
	// the last one is known.
	keep = 900
	// slack is what a request may take beside the ends of its containers, in seconds: its turn, the daemon's
	// start, hooks that are late.
	slack = 300
	// ofKubelet is what kubelet may take beside the grace period to stop what runs in a finished pod.
	ofKubelet = 30 * time.Second
	// Numbers of requests. From laterOn on all pauses have the longest length; after the last number it is
	// the next one, and the request that had it is gone by then.
	laterOn, last = 10, 99
)

var ending = regexp.MustCompile(`^(.+?)(-ignore)?(?:-([1-9][0-9]?))?$`)

// attempt is what the name of a request says.
type attempt struct {
	pod    types.UID
	ignore bool
	number int
}

func (a attempt) name() string {
	name := prefix + string(a.pod)
	if a.ignore {
		name += ignore
	}
	if a.number > 1 {
		name += "-" + strconv.Itoa(a.number)
	}
	return name
}

// attemptOf reads the name of a request; false if it is none of ours.
func attemptOf(name string) (attempt, bool) {
	if len(name) < len(prefix) || name[:len(prefix)] != prefix {
		return attempt{}, false
	}
	parts := ending.FindStringSubmatch(name[len(prefix):])
	if parts == nil {
		return attempt{}, false
	}
	a := attempt{pod: types.UID(parts[1]), ignore: parts[2] != "", number: 1}
	if parts[3] != "" {
		a.number, _ = strconv.Atoi(parts[3]) // two digits at most
	}
	return a, a.name() == name // so that a pod has a bounded number of requests
}

// PodUID is the UID of the pod that is in the name of a request, empty if it has no such name.
func PodUID(name string) types.UID {
	if a, ok := attemptOf(name); ok {
		return a.pod
	}
	return ""
}

// OwnerOf is the name of the pod that controls the request, empty if its name is none of ours, or none does.
func OwnerOf(request *appsv1beta1.ContainerRecreateRequest) string {
	owner := metav1.GetControllerOfNoCopy(request)
	if uid := PodUID(request.Name); uid == "" || owner == nil || owner.UID != uid || owner.Kind != "Pod" {
		return ""
	}
	return owner.Name
}

// isFor tells whether the request was made for the pod. Whoever makes one that is asks for what would be
// asked for anyhow.
func isFor(pod *corev1.Pod, request *appsv1beta1.ContainerRecreateRequest) bool {
	return OwnerOf(request) == pod.Name && PodUID(request.Name) == pod.UID &&
		request.Spec.PodName == pod.Name && restart.PodUID(request) == pod.UID
}

// history is what requests of one group of sidecars say.
type history struct {
	// ours are those for the pod, the newest one first, and before all others one that is under way; last is
	// the first of them, nil if there is none.
	ours []*appsv1beta1.ContainerRecreateRequest
	last *appsv1beta1.ContainerRecreateRequest
	// taken are the numbers that are in use, foreign the names that are somebody else's.
	taken   map[int]bool
	foreign []string
}

func (s *Snapshot) history(ignored bool) history {
	h := history{taken: map[int]bool{}}
	for _, r := range s.Requests {
		a, ok := attemptOf(r.Name)
		if !ok || a.pod != s.Pod.UID || a.ignore != ignored {
			continue
		}
		h.taken[a.number] = true
		if !isFor(s.Pod, r) {
			h.foreign = append(h.foreign, r.Name)
			continue
		}
		h.ours = append(h.ours, r)
	}
	// API servers have clocks of their own
	slices.SortFunc(h.ours, func(a, b *appsv1beta1.ContainerRecreateRequest) int {
		return cmp.Or(order(Over(a))-order(Over(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			numberOf(b)-numberOf(a))
	})
	if len(h.ours) > 0 {
		h.last = h.ours[0]
	}
	slices.Sort(h.foreign)
	return h
}

func order(over bool) int {
	if over {
		return 1
	}
	return 0
}

func numberOf(request *appsv1beta1.ContainerRecreateRequest) int {
	a, _ := attemptOf(request.Name)
	return a.number
}

// number is that of the newest request, 0 if there is none.
func (h *history) number() int {
	if h.last == nil {
		return 0
	}
	return numberOf(h.last)
}

// next is the number of the request after the newest one; false if all names are taken.
func (h *history) next() (int, bool) {
	number := h.number()
	for range last {
		if number++; number > last {
			number = laterOn
		}
		if !h.taken[number] {
			return number, true
		}
	}
	return 0, false
}

// pause is how long the next request waits after that number.
func pause(number int) time.Duration {
	wait := firstPause
	for ; number > 1 && wait < longestPause; number-- {
		wait *= 2
	}
	return min(wait, longestPause)
}

// Over tells whether nothing more comes of the request.
func Over(request *appsv1beta1.ContainerRecreateRequest) bool {
	return restart.Completed(request) || request.DeletionTimestamp != nil
}

// unanswered tells whether the newest request ended because the node has no daemon that answers.
func (h *history) unanswered() bool {
	return h.last != nil && restart.Completed(h.last) && h.last.Status.Message == restart.MessageNoAnswer
}

// covering is the newest request for the container, and what it says of it; nil if there is none.
func (h *history) covering(
	name string,
) (*appsv1beta1.ContainerRecreateRequest, *appsv1beta1.ContainerRecreateRequestContainer) {
	for _, request := range h.ours {
		for i := range request.Spec.Containers {
			if asked := &request.Spec.Containers[i]; asked.Name == name {
				return request, asked
			}
		}
	}
	return nil, nil
}

// cameBack tells whether kubelet started the container anew after the newest request for it.
func (h *history) cameBack(c *container) bool {
	request, asked := h.covering(c.Name)
	return request != nil && restart.Completed(request) && asked.StatusContext != nil &&
		c.status.RestartCount > asked.StatusContext.RestartCount
}

// request makes a request of that number for the containers.
func (s *Snapshot) request(names []string, ignored bool, number int) *appsv1beta1.ContainerRecreateRequest {
	deadline := int64(slack)
	for range names { // they end one after the other
		deadline += int64(s.grace() / time.Second)
	}
	made := &appsv1beta1.ContainerRecreateRequest{
		TypeMeta: metav1.TypeMeta{
			APIVersion: appsv1beta1.GroupVersion.String(),
			Kind:       "ContainerRecreateRequest",
		},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Pod.Namespace,
			Name:      attempt{s.Pod.UID, ignored, number}.name(),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(s.Pod, corev1.SchemeGroupVersion.WithKind("Pod")),
			},
		},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{
			PodName:                 s.Pod.Name,
			ActiveDeadlineSeconds:   &deadline,
			TTLSecondsAfterFinished: new(int32(keep)),
			Strategy: &appsv1beta1.ContainerRecreateRequestStrategy{
				ForceRecreate: true,
				FailurePolicy: appsv1beta1.ContainerRecreateRequestFailurePolicyIgnore,
			},
		},
	}
	made.OwnerReferences[0].BlockOwnerDeletion = nil // nobody needs to wait for it
	for _, name := range names {
		made.Spec.Containers = append(made.Spec.Containers,
			appsv1beta1.ContainerRecreateRequestContainer{Name: name})
	}
	return made
}

// grace is how long a container of the pod may take to end; a day at most is waited for.
func (s *Snapshot) grace() time.Duration {
	if s.Pod.Spec.TerminationGracePeriodSeconds == nil {
		return corev1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return min(max(seconds.Duration(*s.Pod.Spec.TerminationGracePeriodSeconds), 0), 24*time.Hour)
}

// described names the request for messages.
func described(request *appsv1beta1.ContainerRecreateRequest) string {
	return fmt.Sprintf("ContainerRecreateRequest %s", request.Name)
}
