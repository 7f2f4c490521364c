package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/simulation"
)

// TestClaimsStayWhenTheSetIsDeletedWithoutItsPods shows that a manager whose cache does not show yet that the
// set goes, or that it is gone, does not give claims back the owner that "kubectl delete --cascade=orphan"
// took from them: they would go with the set (ASTS-073 (part)).
func TestClaimsStayWhenTheSetIsDeletedWithoutItsPods(t *testing.T) {
	for how, goes := range map[string]func(*simulated){
		"goes": func(s *simulated) {
			s.Change(setKey, func(o client.Object) {
				now := metav1.NewTime(s.Now())
				o.SetDeletionTimestamp(&now)
				o.SetFinalizers([]string{"orphan"})
			})
		},
		"is gone":        func(s *simulated) { s.Remove(setKey) },
		"is another one": func(s *simulated) { s.Remove(setKey); s.Store(setKey, makeSet(2, claimed("data"))) },
	} {
		s := started(t, makeSet(2, claimed("data"), retain(remove, keep)), everything)
		before := s.Cached(setKey)
		goes(s)
		for name := range s.claims() {
			s.Change(claimKey(name), func(o client.Object) { o.SetOwnerReferences(nil) })
		}
		s.Events(1 << 20)
		s.Show(setKey, before) // the cache of sets lags
		s.Queue.Add()
		s.Manage()
		for name := range s.claims() {
			if owners := s.owners(name); len(owners) > 0 {
				t.Errorf("the set %s, and %s gets the owners %v", how, name, owners)
			}
		}
	}
}

// TestClaimsStayWithAPodThatIsNoSlotInAnOldSpecAlone shows that a manager that does not know the present spec
// lets no claim go with a pod that is a slot again (ASTS-263 (part)).
func TestClaimsStayWithAPodThatIsNoSlotInAnOldSpecAlone(t *testing.T) {
	s := started(t, makeSet(3, claimed("data"), retain(keep, remove)), everything)
	s.Edit(replicas(2))
	s.Events(1 << 20)
	old := s.Cached(setKey)
	s.Edit(replicas(3))
	s.Events(1 << 20)
	s.Show(setKey, old)
	s.Queue.Add()
	s.Manage()
	if owners := s.owners("data-web-2"); len(owners) > 0 {
		t.Errorf("the claim goes with its pod: %v", owners)
	}
}

// TestAClaimUnderContentionIsNotFought shows that a claim whose newest version the cache does not show is not
// written again and again.
func TestAClaimUnderContentionIsNotFought(t *testing.T) {
	s := started(t, makeSet(1, claimed("data")), everything)
	s.Edit(retain(remove, keep))
	s.Events(1 << 20)
	old := s.Cached(claimKey("data-web-0"))
	s.Change(claimKey("data-web-0"), func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) })
	s.Events(1 << 20)
	s.Show(claimKey("data-web-0"), old)
	writes := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "patch" && r.Key.Kind == "PersistentVolumeClaim" {
			writes++
		}
		return nil
	}
	for end := s.Now().Add(10 * time.Second); s.Now().Before(end); {
		if !s.Manage() {
			s.Pass(time.Millisecond)
		}
	}
	if writes > 20 {
		t.Errorf("%d requests in ten seconds", writes)
	}
	s.Show(claimKey("data-web-0"), s.Get(claimKey("data-web-0")))
	s.ActFor(time.Minute)
	if owners := s.owners("data-web-0"); len(owners) != 1 {
		t.Errorf("owners %v", owners)
	}
}
