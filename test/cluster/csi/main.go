// Command csi is the storage driver of the local cluster: volumes with a size that is kept, that pods feel,
// and that grows. One process serves the controller and all nodes, because these share one mount namespace.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// driverName is the name in StorageClasses, CSINodes and PersistentVolumes.
const driverName = "csi.afloat.dev"

func main() {
	dir := flag.String("dir", "", "folder of the volumes and of the sockets controller.sock and NODE.sock")
	var nodes []string
	flag.Func("node", "NODE=FOLDER: a node, and the folder that its kubelet was given as root-dir (repeat)",
		func(value string) error {
			nodes = append(nodes, value)
			return nil
		})
	flag.Parse()
	if err := serve(&volumes{dir: *dir, mounter: linux{}}, nodes); err != nil {
		log.Fatal(err)
	}
}

// serve serves until one of the servers fails.
func serve(volumes *volumes, nodes []string) error {
	failed := make(chan error)
	start := func(socket string, server *grpc.Server) error {
		listener, err := listen(socket)
		if err == nil {
			go func() { failed <- server.Serve(listener) }()
		}
		return err
	}
	if err := start(filepath.Join(volumes.dir, "controller.sock"), newServer(volumes, "")); err != nil {
		return err
	}
	for _, value := range nodes {
		node, kubelet, _ := strings.Cut(value, "=")
		socket := filepath.Join(volumes.dir, node+".sock")
		if err := start(socket, newServer(volumes, node)); err != nil {
			return err
		}
		plugins := grpc.NewServer()
		registration.RegisterRegistrationServer(plugins, &registrar{endpoint: socket})
		if err := start(filepath.Join(kubelet, "plugins_registry", driverName+".sock"), plugins); err != nil {
			return err
		}
	}
	return <-failed
}

// listen takes the place of a process that ended without removing its socket.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	return net.Listen("unix", socket)
}

// newServer serves the controller and, if it has a name, a node.
func newServer(volumes *volumes, node string) *grpc.Server {
	server := grpc.NewServer(grpc.UnaryInterceptor(logFailures))
	csi.RegisterIdentityServer(server, identity{})
	csi.RegisterControllerServer(server, controller{volumes: volumes})
	if node != "" {
		csi.RegisterNodeServer(server, nodeServer{volumes: volumes, name: node})
	}
	return server
}

func logFailures(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	if err != nil {
		log.Printf("%s: %v", info.FullMethod, err)
	}
	return answer, err
}

// registrar tells a kubelet of the driver.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

// GetInfo says where the driver is served.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: driverName, Endpoint: r.endpoint,
		SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus writes into the log what the kubelet thinks of the driver; it tries again by
// itself.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, is *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	if !is.PluginRegistered {
		log.Printf("the kubelet refuses %s: %s", r.endpoint, is.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
