package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// memory stands for mounts: the sizes of file systems by folder, 0 for a folder that shows another.
type memory map[string]int64

func (m memory) Memory(folder string, size int64) error { m[folder] = size; return nil }
func (m memory) Bind(_, to string, _ bool) error        { m[to] = 0; return nil }
func (m memory) Unmount(folder string) error            { delete(m, folder); return nil }
func (m memory) Mounted(folder string) (bool, error)    { _, is := m[folder]; return is, nil }

// suite is a driver that serves one node, and its callers.
type suite struct {
	*testing.T
	dir        string
	mounts     memory
	controller csi.ControllerClient
	node       csi.NodeClient
	target     string
}

func start(t *testing.T) *suite {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // the folder of the test may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // only tidiness
	mounts := memory{}
	kubelet := filepath.Join(dir, "kubelet")
	go serve(&volumes{dir: dir, mounter: mounts}, []string{"node1=" + kubelet}) //nolint:errcheck // calls fail then
	plugin, err := registration.NewRegistrationClient(dial(t, filepath.Join(kubelet, "plugins_registry", driverName+".sock"))).
		GetInfo(t.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || plugin.Name != driverName || plugin.Type != "CSIPlugin" {
		t.Fatalf("the kubelet is told of %v: %v", plugin, err)
	}
	node := csi.NewNodeClient(dial(t, plugin.Endpoint))
	if is, err := node.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{}); err != nil || is.NodeId != "node1" {
		t.Fatalf("the node is %v: %v", is, err)
	}
	return &suite{t, dir, mounts, csi.NewControllerClient(dial(t, filepath.Join(dir, "controller.sock"))), node,
		filepath.Join(dir, "pod", "mount")}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the test is over
	return conn
}

var mount = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}

func (s *suite) create(size int64, parameters map[string]string) (*csi.Volume, error) {
	answer, err := s.controller.CreateVolume(s.Context(), &csi.CreateVolumeRequest{Name: "pvc-1", Parameters: parameters,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*csi.VolumeCapability{mount}})
	return answer.GetVolume(), err
}

func (s *suite) publish() {
	s.Helper()
	for range 2 { // a kubelet calls again
		if _, err := s.node.NodePublishVolume(s.Context(), &csi.NodePublishVolumeRequest{VolumeId: "pvc-1", TargetPath: s.target,
			VolumeCapability: mount}); err != nil {
			s.Fatal(err)
		}
	}
	if mounted, _ := s.mounts.Mounted(s.target); !mounted {
		s.Fatal("the pod has no volume")
	}
}

func (s *suite) unpublish() {
	s.Helper()
	for range 2 {
		if _, err := s.node.NodeUnpublishVolume(s.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "pvc-1",
			TargetPath: s.target}); err != nil {
			s.Fatal(err)
		}
	}
	if _, err := os.Stat(s.target); !os.IsNotExist(err) {
		s.Errorf("the folder is left: %v", err)
	}
}

// grant asks the controller for a size, and returns whether a node has to do something.
func (s *suite) grant(size int64) (bool, error) {
	answer, err := s.controller.ControllerExpandVolume(s.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "pvc-1",
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
	if err == nil && answer.CapacityBytes < size {
		s.Errorf("%d is granted instead of %d", answer.CapacityBytes, size)
	}
	return answer.GetNodeExpansionRequired(), err
}

func (s *suite) expand() error {
	_, err := s.node.NodeExpandVolume(s.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "pvc-1", VolumePath: s.target})
	return err
}

// grown checks the size of the file system.
func (s *suite) grown(want int64) {
	s.Helper()
	if size := s.mounts[filepath.Join(s.dir, "volumes", "pvc-1")]; size != want {
		s.Errorf("the file system has size %d, not %d", size, want)
	}
}

func TestAVolumeGrowsInUse(t *testing.T) {
	s := start(t)
	for range 2 { // a controller calls again
		if volume, err := s.create(8<<20, nil); err != nil || volume.VolumeId != "pvc-1" || volume.CapacityBytes != 8<<20 {
			t.Fatalf("volume %v: %v", volume, err)
		}
	}
	if _, err := s.create(9<<20, nil); status.Code(err) != codes.AlreadyExists {
		t.Errorf("another size under the same name: %v", err)
	}
	s.publish()
	s.grown(8 << 20)
	if todo, err := s.grant(16 << 20); err != nil || !todo {
		t.Errorf("something to do on the node: %v, %v", todo, err)
	}
	s.grown(8 << 20)
	if err := s.expand(); err != nil {
		t.Error(err)
	}
	s.grown(16 << 20)
	if todo, err := s.grant(8 << 20); err != nil || todo {
		t.Errorf("a volume does not shrink: %v, %v", todo, err)
	}
	s.unpublish()
	for range 2 {
		if _, err := s.controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "pvc-1"}); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(s.dir, "volumes")); err != nil || len(left) > 0 || len(s.mounts) > 0 {
		t.Errorf("left are %v and %v, %v", left, s.mounts, err)
	}
}

func TestAVolumeRefusesToGrowBeyondItsLimit(t *testing.T) {
	s := start(t)
	if _, err := s.create(8<<20, nil); err != nil {
		t.Fatal(err)
	}
	limit := filepath.Join(s.dir, "volumes", "pvc-1.limit")
	if err := os.WriteFile(limit, []byte("12000000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.grant(16 << 20); status.Code(err) != codes.Internal {
		t.Errorf("growing gives %v", err)
	}
	if _, err := s.grant(9 << 20); err != nil {
		t.Errorf("less than the limit is refused: %v", err)
	}
	if err := os.Remove(limit); err != nil {
		t.Fatal(err)
	}
	if _, err := s.grant(16 << 20); err != nil {
		t.Error(err)
	}
}

func TestAnOfflineVolumeGrowsBetweenPods(t *testing.T) {
	s := start(t)
	if _, err := s.create(8<<20, map[string]string{"expansion": "offline"}); err != nil {
		t.Fatal(err)
	}
	s.publish()
	if todo, err := s.grant(16 << 20); err != nil || !todo {
		t.Errorf("something to do on the node: %v, %v", todo, err)
	}
	if err := s.expand(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("growing in use gives %v", err)
	}
	s.unpublish()
	s.grown(8 << 20)
	s.publish()
	s.grown(16 << 20)
	if err := s.expand(); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNoVolumeIsNotFound(t *testing.T) {
	s := start(t)
	for _, id := range []string{"", "pvc-2", "../../etc"} {
		_, err := s.controller.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id})
		if status.Code(err) != codes.NotFound {
			t.Errorf("growing %q gives %v", id, err)
		}
	}
	if _, err := s.create(1, map[string]string{"expansion": "never"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a parameter that nobody knows gives %v", err)
	}
}
